// How are leases kept on disk, next to a reference plugin that keeps its own in the same place?
import {
  closeSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { findIp, type Ip, renderIp } from '../../src/net/ip.ts';
import { withFlock } from '../../src/sys/flock.ts';
import type { Allocation, Leases } from './allocate.ts';
import { type Owner, parseOwner, renderOwner, sameOwner } from './owner.ts';
import { OwnerIndex } from './owner-index.ts';

/** Longest wait for the lock; a holder keeps it for milliseconds. */
const LOCK_DEADLINE_MS = 30_000;
/** How many addresses are looked up one by one. */
const PROBES = 16;
/** A lease is written here and then linked to its address, so that no crash leaves an empty one. */
const UNFINISHED_LEASE = '.catena-lease';
const UNFINISHED_POINTER = '.catena-pointer';

/**
 * Runs a function while nobody else, ours or the reference, changes the leases in the directory.
 * @throws CniError 11 when the lock cannot be had in time
 */
export function withStore<T>(dir: string, work: (store: LeaseStore) => T): T {
  let entered = false;
  try {
    return withFlock(
      join(dir, 'lock'),
      LOCK_DEADLINE_MS,
      () => {
        entered = true;
        const store = new LeaseStore(dir);
        const outcome = work(store);
        store.saveIndex();
        return outcome;
      },
      0o750,
    );
  } catch (cause) {
    if (entered) throw cause;
    throw new CniError(ErrorCode.tryAgainLater, (cause as Error).message, { cause });
  }
}

/** Creates the directory of a network's leases. Same as: `mkdir -p` */
export function ensureStore(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o755 });
}

/** True when anything was ever leased here. */
export function storeExists(dir: string): boolean {
  return existsSync(dir);
}

/** Addresses that have a lease, in canonical text; files of other names are no leases. No lock needed. */
export function listLeases(dir: string): string[] {
  return readdirSync(dir).filter(name => /^[\da-f:][\da-f.:]*$/.test(name) && findIp(name) !== undefined);
}

/**
 * The leases of one network: a file per address, named after it, that holds the owner; and per range set a file
 * `last_reserved_ip.<index>`. To be used inside {@link withStore} only.
 */
export class LeaseStore implements Leases {
  readonly #dir: string;
  #probes = 0;
  #names: ReadonlySet<string> | undefined;
  #index: OwnerIndex | undefined;
  #changed = false;

  constructor(dir: string) {
    this.#dir = dir;
    this.#index = OwnerIndex.find(dir);
  }

  isTaken(ip: Ip): boolean {
    // The address after the last one is nearly always free: look for its file before reading the whole directory.
    if (this.#names === undefined && ++this.#probes <= PROBES)
      return existsSync(join(this.#dir, renderIp(ip)));
    this.#names ??= new Set(readdirSync(this.#dir));
    return this.#names.has(renderIp(ip));
  }

  findLastReserved(setIndex: number): Ip | undefined {
    const text = this.#read(`last_reserved_ip.${setIndex}`);
    return text === undefined ? undefined : findIp(text);
  }

  /** Addresses leased to the attachment; leases from before interface names were kept count when there are no others. */
  findLeasesOf(owner: Owner): string[] {
    const index = this.#makeIndex();
    const exact = index.findCandidates(owner).filter(address => this.isOwnedBy(address, owner));
    if (exact.length) return exact;
    const older = { containerId: owner.containerId };
    return index.findCandidates(older).filter(address => this.isOwnedBy(address, older));
  }

  /** Who holds the address; undefined when nobody does or the file says nothing that we understand. */
  findOwner(address: string): Owner | undefined {
    const text = this.#read(address);
    return text === undefined ? undefined : parseOwner(text);
  }

  /** True when the address is leased to the attachment. */
  isOwnedBy(address: string, owner: Owner): boolean {
    const holder = this.findOwner(address);
    return holder !== undefined && sameOwner(holder, owner);
  }

  /**
   * True for a lease that names nobody. Every writer fills a lease before it lets the lock go, so this one's writer
   * died in between.
   */
  isTorn(address: string): boolean {
    return this.#read(address)?.trim() === '';
  }

  /**
   * Writes the leases and moves the pointers of their sets: all of them, or none when one fails.
   * @throws Error when an address was taken by someone who does not respect the lock
   */
  reserve(allocations: readonly Allocation[], owner: Owner): void {
    const done: string[] = [];
    this.#changed = true;
    try {
      for (const { ip, setIndex } of allocations) {
        const address = renderIp(ip);
        this.#index?.add(address, owner);
        this.#writeLease(address, renderOwner(owner));
        done.push(address);
        this.#writePointer(setIndex, address);
      }
    } catch (cause) {
      for (const address of done) rmSync(join(this.#dir, address), { force: true });
      throw cause;
    }
  }

  /**
   * Takes leases away; absent ones are fine.
   * @throws AggregateError after all were tried
   */
  release(addresses: readonly string[]): void {
    this.#changed ||= addresses.length > 0;
    const problems = addresses.flatMap(address => {
      try {
        rmSync(join(this.#dir, address), { force: true });
        return [];
      } catch (cause) {
        return [
          new Error(`Cannot release ${address} in "${this.#dir}": ${(cause as Error).message}`, { cause }),
        ];
      }
    });
    if (problems.length) throw new AggregateError(problems, 'Cannot release all leases');
  }

  /** Keeps the index in step with what was done here; a change without an index leaves it to the next call. */
  saveIndex(): void {
    if (this.#changed) this.#index?.save();
  }

  #makeIndex(): OwnerIndex {
    if (this.#index === undefined) {
      const leases = listLeases(this.#dir).flatMap(address => {
        const owner = this.findOwner(address);
        return owner === undefined ? [] : [[address, owner] as const];
      });
      this.#index = OwnerIndex.make(this.#dir, leases);
      this.#changed = true;
    }
    return this.#index;
  }

  #read(name: string): string | undefined {
    try {
      return readFileSync(join(this.#dir, name), 'utf8');
    } catch (cause) {
      if ((cause as { code?: string }).code === 'ENOENT') return undefined;
      throw cause;
    }
  }

  #writeLease(address: string, text: string): void {
    const unfinished = join(this.#dir, UNFINISHED_LEASE);
    this.#writeNew(unfinished, text);
    try {
      linkSync(unfinished, join(this.#dir, address));
    } catch (cause) {
      throw new Error(`Cannot reserve ${address} in "${this.#dir}": ${(cause as Error).message}`, { cause });
    } finally {
      rmSync(unfinished, { force: true });
    }
  }

  #writePointer(setIndex: number, address: string): void {
    const unfinished = join(this.#dir, UNFINISHED_POINTER);
    this.#writeNew(unfinished, address);
    renameSync(unfinished, join(this.#dir, `last_reserved_ip.${setIndex}`));
  }

  /** A leftover of a crash may share its inode with a lease: it is taken away, never written to. */
  #writeNew(path: string, text: string): void {
    rmSync(path, { force: true });
    const fd = openSync(path, 'wx', 0o600);
    try {
      writeSync(fd, text);
    } finally {
      closeSync(fd);
    }
  }
}
