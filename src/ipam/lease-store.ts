// How are leases stored on disk, in a directory shared with the reference plugin, and which of them does GC delete?
import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { CniError, tryAgainLater } from '../cni/errors.ts';
import type { Result, ResultIp } from '../cni/result.ts';
import { fileExists, fileFailure } from '../files/read-file.ts';
import type { Log } from '../log.ts';
import { type Family, findCidr, findIp, findIpv4Number, type Ip, parseIp, renderIp } from '../net/ip.ts';
import { LockHeld, withFlock } from '../sys/flock.ts';
import { findUse } from './holders.ts';
import {
  type BootOfLease,
  bootOf,
  createLease,
  isLease,
  isShareable,
  listLeases,
  noteBoot,
  noteReader,
  type Owner,
  parseOwner,
  readLease,
  readPointer,
  removeLease,
  renderAttachment,
  renderOwner,
  sameOwner,
  writePointer,
} from './lease-files.ts';
import { findDeadLeases, findLostLeases } from './lease-use.ts';
import { OwnerIndex } from './owner-index.ts';

/** So many addresses are tried before the directory is listed: the one after the last that was handed out is nearly always free. */
const PROBES = 4n;

/** An address to lease, and the range set whose pointer moves to it. */
export interface NewLease {
  readonly ip: Ip;
  readonly setIndex: number;
}

export interface StoreOptions {
  /** Delete leases of an earlier boot when they are found. */
  readonly reclaim: boolean;
  /** The network whose containers get back what other programs deleted of their leases, if those deleted all; none unless given. */
  readonly network?: string;
  /** False for a verb that only looks, such as CHECK: what other programs deleted stays so, and known, until the next call. */
  readonly restores?: boolean;
  /** Whether other machines may lease from the directory, too; unless given, its file system tells. */
  readonly isShared?: boolean;
  /** Maximum wait for the lock; 30 seconds unless given. */
  readonly deadlineMs?: number;
  readonly create?: boolean;
  /** Learns of leases that were made again: containers have the addresses, and the files were deleted. */
  readonly onRestored?: ((addresses: readonly string[]) => void) | undefined;
}

/**
 * Runs a function while no other process, ours or the reference, changes the leases in the directory.
 * @throws CniError 11 when the lock cannot be acquired in time, 5 when it cannot be taken at all
 */
export function withStore<T>(dir: string, options: StoreOptions, work: (store: LeaseStore) => T): T {
  let entered = false;
  try {
    return withFlock(
      join(dir, 'lock'),
      () => {
        entered = true;
        const store = new LeaseStore(dir, options);
        const outcome = work(store);
        if (store.restored.length) options.onRestored?.(store.restored);
        store.save();
        return outcome;
      },
      { mode: 0o750, deadlineMs: options.deadlineMs, ...(options.create ? { directoryMode: 0o755 } : {}) },
    );
  } catch (cause) {
    // Errors of the file system say which operation failed, but not what it was for.
    const { code, syscall } = cause as { code?: unknown; syscall?: unknown };
    if (typeof code === 'string' && typeof syscall === 'string')
      throw fileFailure('use lease directory', dir, cause);
    if (entered) throw cause;
    if (cause instanceof LockHeld) throw tryAgainLater(cause.message, { cause });
    throw fileFailure('use lease directory', dir, cause);
  }
}

/**
 * The leases of one network: one file per address, named after it, which contains the owner; and one file
 * `last_reserved_ip.<index>` per range set. Use it only inside {@link withStore}.
 */
export class LeaseStore {
  readonly #dir: string;
  readonly #reclaim: boolean;
  readonly #network: string | undefined;
  readonly #restores: boolean;
  #shared: boolean | undefined;
  /** Read when it is first needed. */
  #index: OwnerIndex | undefined;
  /** The index covers the directory as it is. */
  #isCurrent = false;
  #changed = false;
  /** Leases that were written again so far: other programs had deleted all of them. */
  readonly restored: string[] = [];
  /** Number of leases of an earlier boot deleted so far. */
  reclaimed = 0;
  /** Pointers already read; under the lock no other process changes them. */
  readonly #pointers = new Map<number, string | undefined>();
  /** What the directory lists; undefined until it is needed, and after a change. */
  #names: readonly string[] | undefined;

  constructor(dir: string, { reclaim, isShared, network, restores = true }: StoreOptions) {
    this.#dir = dir;
    this.#network = network;
    this.#restores = restores;
    this.#reclaim = reclaim;
    this.#shared = isShared;
    const index = OwnerIndex.find(dir);
    // The process that made it may have been told to keep what we have to delete.
    if (index === undefined || (reclaim && !index.swept)) return;
    this.#index = index;
    this.#isCurrent = index.isCurrent;
  }

  /** The index, brought up to date if another program has changed the directory. */
  #open(): OwnerIndex {
    return this.#index && this.#isCurrent ? this.#index : this.#bringUpToDate('new names');
  }

  isTaken(ip: Ip): boolean {
    return fileExists(join(this.#dir, renderIp(ip)));
  }

  /** The first free address from `from` to `to`, inclusive. */
  findFree(from: Ip, to: Ip): Ip | undefined {
    // Leases of an earlier boot are deleted first.
    this.#open();
    const { family } = from;
    let value = from.value;
    for (const end = value + PROBES; value < end && value <= to.value; value++) {
      if (!this.isTaken({ family, value })) return { family, value };
    }
    const taken = this.#listTaken(family);
    // Sets of numbers are several times as fast as sets of large ones.
    const isTaken = (one: bigint) => taken.has(family === 4 ? Number(one) : one);
    for (; value <= to.value; value++) if (!isTaken(value)) return { family, value };
    return undefined;
  }

  countTaken(from: Ip, to: Ip): number {
    this.#open();
    let count = 0;
    for (const value of this.#listTaken(from.family)) if (value >= from.value && value <= to.value) count++;
    return count;
  }

  #listTaken(family: Family): Set<number | bigint> {
    this.#names ??= readdirSync(this.#dir);
    const taken = new Set<number | bigint>();
    for (const name of this.#names) {
      const number = family === 4 ? findIpv4Number(name) : undefined;
      if (number !== undefined) taken.add(number);
      // 10.1.0.2 is not ::a01:2.
      else if (family === 6 && name.includes(':') && isLease(name)) taken.add(parseIp(name).value);
    }
    return taken;
  }

  get #isShared(): boolean {
    this.#shared ??= isShareable(this.#dir);
    return this.#shared;
  }

  /** Whether another machine may have written the lease: where machines share the directory, only this one's note says that it has not. */
  isOfAnother(address: string): boolean {
    return this.bootOf(address) === 'unknown' && this.#isShared;
  }

  bootOf(address: string): BootOfLease {
    return bootOf(join(this.#dir, address));
  }

  findLastReserved(setIndex: number): Ip | undefined {
    const text = this.#pointerOf(setIndex);
    return text === undefined ? undefined : findIp(text);
  }

  #pointerOf(setIndex: number): string | undefined {
    if (!this.#pointers.has(setIndex)) this.#pointers.set(setIndex, readPointer(this.#dir, setIndex));
    return this.#pointers.get(setIndex);
  }

  /**
   * Addresses leased to the attachment. Leases from before interface names were stored count if there are no others. The index
   * alone is not reliable: it may list only one of two leases, and it lists a lease that was overwritten in place under its
   * former owner. So the index is completed first, and if it finds nothing, every lease is read.
   */
  findLeasesOf(owner: Owner): string[] {
    this.meetAll();
    const known = this.findKnownLeasesOf(owner);
    return known.length ? known : this.#heldBy(owner, listLeases(this.#dir));
  }

  /**
   * Like {@link findLeasesOf}, but may miss a lease that another program replaced under the same name. In a directory of tens
   * of thousands of leases that other programs write to, it takes a quarter of the time.
   */
  findKnownLeasesOf(owner: Owner): string[] {
    return this.#heldBy(owner, this.#open().findCandidates(owner.containerId));
  }

  /** Those addresses whose lease names the attachment, or if there are none, only its container. */
  #heldBy({ containerId, ifname }: Owner, addresses: readonly string[]): string[] {
    const owners = new Map(addresses.map(address => [address, this.findOwner(address)]));
    const heldAs = (name: string | undefined) =>
      addresses.filter(one => {
        const holder = owners.get(one);
        return holder?.containerId === containerId && holder.ifname === name;
      });
    const exact = heldAs(ifname);
    return exact.length ? exact : heldAs(undefined);
  }

  /** Reads every lease not yet noted in this boot, including those under known names. */
  meetAll(): void {
    this.#names = undefined;
    if (!this.#open().complete) this.#bringUpToDate('all leases');
  }

  /** The owner of the address; undefined when it is not leased or the file cannot be parsed. */
  findOwner(address: string): Owner | undefined {
    return parseOwner(readLease(this.#dir, address) ?? '');
  }

  /** When the lease was written, in milliseconds; undefined if it does not exist. */
  findTime(address: string): number | undefined {
    return statSync(join(this.#dir, address), { throwIfNoEntry: false })?.mtimeMs;
  }

  /** Releases those of the addresses that the attachment still has: another one may have got one of them since. */
  releaseOwn(owner: Owner, ips: readonly Ip[]): void {
    const isOwn = (address: string): boolean => {
      const holder = this.findOwner(address);
      return holder !== undefined && sameOwner(holder, owner);
    };
    this.release(ips.map(renderIp).filter(isOwn));
  }

  /**
   * True for an empty lease. Every writer fills a lease before it releases the lock, so the writer of this one died in
   * between.
   */
  isTorn(address: string): boolean {
    return readLease(this.#dir, address)?.trim() === '';
  }

  /**
   * Writes the leases and moves the pointers of their range sets: all of them, or none if one fails.
   * @throws Error when an address was taken by a process that ignores the lock
   */
  reserve(leases: readonly NewLease[], owner: Owner): void {
    const index = this.#open();
    const done: string[] = [];
    const pointers = leases.map(({ setIndex }) => [setIndex, this.#pointerOf(setIndex)] as const);
    this.#noteChange();
    try {
      index.add(leases.map(({ ip }) => [renderIp(ip), owner]));
      for (const { ip } of leases) {
        createLease(this.#dir, renderIp(ip), renderOwner(owner));
        done.push(renderIp(ip));
      }
      for (const { ip, setIndex } of leases) this.#movePointer(setIndex, renderIp(ip));
    } catch (cause) {
      for (const address of done) rmSync(join(this.#dir, address), { force: true });
      index.forget(leases.map(({ ip }) => renderIp(ip)));
      for (const [setIndex, text] of pointers) {
        if (readPointer(this.#dir, setIndex) !== text) this.#movePointer(setIndex, text);
      }
      throw cause;
    }
  }

  #movePointer(setIndex: number, text: string | undefined): void {
    this.#pointers.delete(setIndex);
    writePointer(this.#dir, setIndex, text);
  }

  /**
   * Deletes leases; missing ones are ignored.
   * @throws CniError 5, or AggregateError of several, after all have been tried
   */
  release(addresses: readonly string[]): void {
    if (addresses.length === 0) return;
    const index = this.#open();
    this.#noteChange();
    const done: string[] = [];
    const problems = addresses.flatMap(address => {
      try {
        removeLease(this.#dir, address);
        done.push(address);
        return [];
      } catch (cause) {
        return [cause];
      }
    });
    index.forget(done);
    if (problems.length === 1) throw problems[0];
    if (problems.length) throw new AggregateError(problems, 'Cannot release all leases');
  }

  #noteChange(): void {
    this.#names = undefined;
    this.#changed = true;
  }

  /** Updates the index to match the changes made here. If that fails it remains invalid. */
  save(): void {
    if (!this.#changed) return;
    try {
      this.#index?.save();
    } catch {
      // For example a full disk. The leases themselves have been changed, and the next call rebuilds the index.
    }
  }

  /** Reads the leases added since the index was saved, or all of them when it is missing or unusable. */
  #bringUpToDate(scope: 'new names' | 'all leases'): OwnerIndex {
    const known = this.#index?.isWorn === false ? this.#index : undefined;
    const listed = known?.listed() ?? new Set<string>();
    const names = readdirSync(this.#dir);
    const present = new Set(names);
    const news = new Set(names.filter(name => !listed.has(name) && isLease(name)));
    if (known && scope === 'all leases') {
      const isNoted = noteReader(this.#dir);
      // A renamed lease keeps its note.
      for (const name of names) if (!isNoted(name) && isLease(name)) news.add(name);
    }
    const { unnoted, owners, gone } = this.#meet(news);
    const isEmpty = !names.some(name => isLease(name) && !gone.includes(name));
    // Not what we have released: its container may be about to lose the address.
    const lost = isEmpty && this.#network !== undefined ? (this.#index?.listed() ?? 'all') : undefined;
    const isLeft = lost !== undefined && !this.#restores;
    // Until they are written again, what is on disk goes on saying what was lost.
    if (lost && !isLeft) owners.push(...this.#restore(lost));
    const index = known ?? OwnerIndex.make(this.#dir, owners, this.#reclaim, !isLeft);
    this.#index = index;
    this.#isCurrent = true;
    if (isLeft) return index;
    if (index === known) {
      known.forget([...listed].filter(name => !present.has(name)).concat(gone));
      known.add(owners);
      known.mark({ swept: known.swept && this.#reclaim, complete: scope === 'all leases' });
    }
    // From now on the index lists their owners.
    for (const address of unnoted) noteBoot(join(this.#dir, address));
    this.#changed = true;
    // Save now: the call itself may still fail, and the next one needs this as well.
    this.save();
    return index;
  }

  /** Who makes room by deleting the files of leases must not give the addresses of living containers to others. */
  #restore(lost: ReadonlySet<string> | 'all'): [address: string, owner: Owner][] {
    if (lost !== 'all' && lost.size === 0) return [];
    const owners: [address: string, owner: Owner][] = [];
    try {
      for (const { ip, owner } of findLostLeases(this.#network ?? '')) {
        const address = renderIp(ip);
        if (this.isTaken(ip) || (lost !== 'all' && !lost.has(address))) continue;
        createLease(this.#dir, address, renderOwner(owner));
        this.restored.push(address);
        owners.push([address, owner]);
      }
      return owners;
    } catch (cause) {
      // The next call has to find all missing.
      for (const address of this.restored) removeLease(this.#dir, address);
      throw cause;
    }
  }

  /** Reads leases not yet noted in this boot, and deletes those that must not remain. */
  #meet(addresses: Iterable<string>) {
    const [unnoted, gone]: [string[], string[]] = [[], []];
    const owners: [address: string, owner: Owner][] = [];
    for (const address of addresses) {
      const [text, boot] = [readLease(this.#dir, address), this.bootOf(address)];
      if (this.#reclaim && (boot === 'earlier' || text?.trim() === '')) {
        rmSync(join(this.#dir, address), { force: true });
        gone.push(address);
        this.reclaimed++;
        continue;
      }
      if (boot === 'unknown' && !this.#isShared) unnoted.push(address);
      const owner = text === undefined ? undefined : parseOwner(text);
      if (owner) owners.push([address, owner]);
    }
    return { unnoted, owners, gone };
  }
}

/**
 * The reference reserves an address before it configures it, and leaves no note of its ADD. A lease without a note that was
 * written less than this many milliseconds before GC began may be of an ADD in progress, which no list of valid attachments can
 * name; the next GC collects it if it is not. An ADD takes well below a second from the lease to the address, or two with
 * duplicate address detection.
 */
const UNNOTED_ADD_MS = 10_000;
/** A lease that is dated later than this after GC began was written before the clock was set back. */
const FUTURE_MS = 3_600_000;

/** What GC keeps, as a plugin's call has it. */
interface Kept {
  /** When GC began, in milliseconds of the clock of the kernel's file times. */
  readonly since: number;
  has(owner: Required<Owner>): boolean;
  /** Whether it was noted when its ADD began. */
  isNoted(owner: Required<Owner>): boolean;
  some(test: (owner: Required<Owner>) => boolean): boolean;
}

export function renderRestored(restored: readonly string[], dir: string): string {
  return `Leased ${restored.join(', ')} again: containers have them, and the files in "${dir}" were deleted`;
}

/** Code of plugins that lease addresses (100 and up are free for plugins); listed in their READMEs. */
const ALREADY_ALLOCATED = 100;

/**
 * Releases addresses of containers that no longer exist: of the attachment itself before it was started again without a DEL, or what it
 * asks for. With two addresses for one attachment, nothing would release the first.
 * @param held what it has from an earlier ADD
 * @param asked addresses that others may have
 * @throws CniError 100 if it still has one
 */
export function releaseDead(
  store: LeaseStore,
  { network, dir }: { readonly network: string; readonly dir: string },
  { env, log }: { readonly env: Owner & { readonly netns: string }; readonly log: Log },
  held: readonly string[],
  asked: readonly string[] = [],
): void {
  const dead = findDeadLeases(dir, network, [...new Set([...held, ...asked])], env.netns);
  store.release(dead);
  if (dead.length) log.info(`Released ${dead.join(', ')} in "${dir}": its container no longer exists`);
  const left = held.filter(address => !dead.includes(address));
  if (left.length === 0) return;
  throw new CniError(
    ALREADY_ALLOCATED,
    `Cannot allocate an address for ${renderAttachment(env)}: it already holds ${left.join(', ')}; DEL releases it`,
  );
}

/**
 * Addresses that a result reports for an attachment and that are not leased to it. Those that other plugins added are ignored, unless none of the
 * addresses is leased.
 * @param isOurs whether the network hands out an address
 */
export function findUnleased(
  ips: readonly ResultIp[],
  leased: readonly string[],
  isOurs: (address: string) => boolean,
): string[] {
  const reported = ips.flatMap(({ address }) => findCidr(address)?.ip ?? []).map(renderIp);
  const unleased = reported.filter(address => !leased.includes(address));
  return unleased.length === reported.length ? unleased : unleased.filter(isOurs);
}

/** CHECK of a call: {@link findUnleased}. @throws Error when nothing is leased, or not what is reported */
export function refuseUnleased(
  { env: owner, prevResult }: { readonly env: Owner; readonly prevResult: Result | undefined },
  dir: string,
  leased: readonly string[],
  isOurs: (address: string) => boolean,
): void {
  if (leased.length === 0) throw new Error(`Cannot find a lease of ${renderAttachment(owner)} in "${dir}"`);
  const wrong = findUnleased(prevResult?.ips ?? [], leased, isOurs);
  if (wrong.length === 0) return;
  throw new Error(
    `Cannot confirm address ${wrong.join(', ')} of ${renderAttachment(owner)}: it holds ${leased.join(', ')} in "${dir}"`,
  );
}

/**
 * Addresses whose owner GC does not keep, and torn files that a crash left without an owner. Files with other content are left
 * alone. Leases without an interface count for every interface of their container. For leases of the reference, which does not
 * note when an ADD began, the date of the lease is used instead, with {@link UNNOTED_ADD_MS}.
 * @param addresses listed while no other process changes the leases
 */
export function findGarbage(
  store: Pick<LeaseStore, 'findOwner' | 'isTorn' | 'findTime'>,
  addresses: readonly string[],
  kept: Kept,
): string[] {
  const isKept = ({ containerId, ifname }: Owner): boolean =>
    ifname === undefined
      ? kept.some(one => one.containerId === containerId)
      : kept.has({ containerId, ifname });
  const isNew = (address: string, { containerId, ifname }: Owner): boolean => {
    const isNoted = ifname !== undefined && kept.isNoted({ containerId, ifname });
    const ageMs = kept.since - (store.findTime(address) ?? 0);
    return ageMs > -FUTURE_MS && ageMs <= (isNoted ? 0 : UNNOTED_ADD_MS);
  };
  return addresses.filter(address => {
    const owner = store.findOwner(address);
    if (owner === undefined) return store.isTorn(address);
    return !isKept(owner) && !isNew(address, owner);
  });
}

/**
 * What {@link findGarbage} finds, except for addresses that an interface in another namespace still has. GC of a main plugin of ours
 * has already deleted the interface; one that another plugin made may still exist, and its address must not be reused.
 */
export function unusedGarbage(store: LeaseStore, dir: string, kept: Kept, log: Log): string[] {
  store.meetAll();
  const garbage = findGarbage(store, listLeases(dir), kept).filter(address => !store.isOfAnother(address));
  const holders = garbage.length ? findUse()?.holders : undefined;
  const isUsed = (address: string) => holders?.get(address)?.some(({ isHere }) => !isHere) ?? false;
  for (const address of garbage.filter(isUsed)) {
    const owner = store.findOwner(address) ?? { containerId: '' };
    log.warn(
      `Keeping the lease of ${address} of ${renderAttachment(owner)}: the attachment is not valid, but an interface still has the address`,
    );
  }
  return garbage.filter(address => !isUsed(address));
}
