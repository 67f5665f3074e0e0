// How are leases kept on disk, next to a reference plugin that keeps its own in the same place?
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { fileFailure } from '../files/failure.ts';
import { findIp, type Ip, renderIp } from '../net/ip.ts';
import { withFlock } from '../sys/flock.ts';
import { type BootOfLease, bootOf } from './boot-note.ts';
import { createLease, readLease, readPointer, removeLease, writePointer } from './lease-files.ts';
import { OwnFilesKeeper } from './own-files.ts';
import { type Owner, parseOwner, renderOwner, sameOwner } from './owner.ts';

/** Where leases live unless a configuration says otherwise; shared with the reference. */
export const DEFAULT_DATA_DIR = '/var/lib/cni/networks';

/** Longest wait for the lock; a holder keeps it for milliseconds. */
const LOCK_DEADLINE_MS = 30_000;
/** An address to be leased, and the set whose pointer moves to it. */
export interface NewLease {
  readonly ip: Ip;
  readonly setIndex: number;
}

/** How to work in the directory of a network's leases. */
export interface StoreOptions {
  /** Take leases of an earlier boot away when they are met. */
  readonly reclaim: boolean;
  /** Longest wait for whoever holds the lock; 30 seconds unless given. */
  readonly deadlineMs?: number;
  /** Make the directory when there is none. */
  readonly create?: boolean;
}

/**
 * Runs a function while nobody else, ours or the reference, changes the leases in the directory.
 * @throws CniError 11 when the lock cannot be had in time
 */
export function withStore<T>(dir: string, options: StoreOptions, work: (store: LeaseStore) => T): T {
  let entered = false;
  try {
    return withFlock(
      join(dir, 'lock'),
      options.deadlineMs ?? LOCK_DEADLINE_MS,
      () => {
        entered = true;
        const store = new LeaseStore(dir, options.reclaim);
        const outcome = work(store);
        store.save();
        return outcome;
      },
      { mode: 0o750, ...(options.create ? { directoryMode: 0o755 } : {}) },
    );
  } catch (cause) {
    if (entered || isOfFileSystem(cause)) throw inWords(cause, dir);
    throw new CniError(ErrorCode.tryAgainLater, (cause as Error).message, { cause });
  }
}

/** True when anything was ever leased here. */
export function storeExists(dir: string): boolean {
  return existsSync(dir);
}

/**
 * The leases of one network: a file per address, named after it, that holds the owner; and per range set a file
 * `last_reserved_ip.<index>`. To be used inside {@link withStore} only.
 */
export class LeaseStore {
  readonly #dir: string;
  readonly #own: OwnFilesKeeper;
  /** What the pointers say that were asked for: under the lock nobody else moves them. */
  readonly #pointers = new Map<number, string | undefined>();

  constructor(dir: string, reclaim: boolean) {
    this.#dir = dir;
    this.#own = new OwnFilesKeeper(dir, reclaim);
  }

  /** How many leases of an earlier boot were taken away by now. */
  get reclaimed(): number {
    return this.#own.reclaimed;
  }

  isTaken(ip: Ip): boolean {
    return existsSync(join(this.#dir, renderIp(ip)));
  }

  /** The first free address from `from` to `to`, both included. */
  findFree(from: Ip, to: Ip): Ip | undefined {
    return this.#own.open().taken.findFree(from, to);
  }

  /** How many addresses are taken from `from` to `to`, both included. */
  countTaken(from: Ip, to: Ip): number {
    return this.#own.open().taken.count(from, to);
  }

  /** Since when the lease has been there. */
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

  /** Addresses leased to the attachment; leases from before interface names were kept count when there are no others. */
  findLeasesOf(owner: Owner): string[] {
    const known = this.findKnownLeasesOf(owner);
    if (known.length || this.#own.open().index.complete) return known;
    this.meetAll();
    return this.findKnownLeasesOf(owner);
  }

  /**
   * Like {@link findLeasesOf}, but may miss a lease that somebody else put in the place of another, under the same name:
   * in a directory of tens of thousands that others write to it takes a quarter of the time.
   */
  findKnownLeasesOf(owner: Owner): string[] {
    const exact = this.#candidatesOf(owner).filter(address => this.isOwnedBy(address, owner));
    if (exact.length) return exact;
    const older = { containerId: owner.containerId };
    return this.#candidatesOf(older).filter(address => this.isOwnedBy(address, older));
  }

  /** The index also lists what is gone; the map does not, and knows without a question to the file system. */
  #candidatesOf(owner: Owner): string[] {
    const { index, taken } = this.#own.open();
    return index.findCandidates(owner).filter(address => taken.has(address));
  }

  /** Looks at every lease that nobody of ours has met in this boot, also at those under names that are known. */
  meetAll(): void {
    this.#own.meetAll();
  }

  /** Who holds the address; undefined when nobody does or the file says nothing that we understand. */
  findOwner(address: string): Owner | undefined {
    const text = readLease(this.#dir, address);
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
    return readLease(this.#dir, address)?.trim() === '';
  }

  /**
   * Writes the leases and moves the pointers of their sets: all of them, or none when one fails.
   * @throws Error when an address was taken by someone who does not respect the lock
   */
  reserve(leases: readonly NewLease[], owner: Owner): void {
    const { index, taken } = this.#own.open();
    const done: Ip[] = [];
    const pointers = leases.map(({ setIndex }) => [setIndex, this.#pointerOf(setIndex)] as const);
    this.#own.noteChange();
    try {
      index.add(leases.map(({ ip }) => [renderIp(ip), owner]));
      for (const { ip } of leases) {
        createLease(this.#dir, renderIp(ip), renderOwner(owner));
        taken.set(ip);
        done.push(ip);
      }
      for (const { ip, setIndex } of leases) this.#movePointer(setIndex, renderIp(ip));
    } catch (cause) {
      for (const ip of done) {
        rmSync(join(this.#dir, renderIp(ip)), { force: true });
        taken.clear(ip);
      }
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
   * Takes leases away; absent ones are fine.
   * @throws CniError 5, or AggregateError of several, after all were tried
   */
  release(addresses: readonly string[]): void {
    if (addresses.length === 0) return;
    const { taken } = this.#own.open();
    this.#own.noteChange();
    const problems = addresses.flatMap(address => {
      try {
        removeLease(this.#dir, address);
        const ip = findIp(address);
        if (ip) taken.clear(ip);
        return [];
      } catch (cause) {
        return [cause];
      }
    });
    if (problems.length === 1) throw problems[0];
    if (problems.length) throw new AggregateError(problems, 'Cannot release all leases');
  }

  /** Keeps our own files in step with what was done here. */
  save(): void {
    this.#own.save();
  }
}

/** Errors of the file system say what they could not do, and not what for. */
function inWords(cause: unknown, dir: string): unknown {
  return isOfFileSystem(cause) ? fileFailure('use lease directory', dir, cause) : cause;
}

function isOfFileSystem(cause: unknown): boolean {
  const { code, syscall } = cause as { code?: unknown; syscall?: unknown };
  return typeof code === 'string' && typeof syscall === 'string';
}
