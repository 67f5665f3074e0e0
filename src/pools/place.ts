// Where does a network keep its leases and blocks, and how are both changed together?
import { join } from 'node:path';
import { tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { listLeases } from '../ipam/lease-files.ts';
import { type LeaseStore, type StoreOptions, withStore } from '../ipam/lease-store.ts';
import { holdFlock } from '../sys/flock.ts';
import { pause } from '../wait.ts';
import { type BlockOwner, type Held, isSameMachine, type ObjectStore, readHeld, writeHeld } from './held.ts';
import { isInBlocks } from './lease.ts';

export interface Place {
  readonly network: string;
  readonly dir: string;
  /** The node's name in the store. What this boot began with stays. */
  readonly node: string;
  /** Of `thisMachine`; undefined if that is not known. */
  readonly machine: string | undefined;
  readonly boot: string;
  /** Whether leases of an earlier boot are released. */
  readonly reclaim: boolean;
  /** Seconds since the boot. */
  clock(): number;
  /** Learns of leases that were made again: containers have the addresses, and the files were deleted. */
  onRestored?(addresses: readonly string[]): void;
}

export interface Compared {
  /** Blocks of this node that it did not know: a request was done after it had been given up. */
  readonly adopted: readonly string[];
  /** Blocks with leases that the store gave to others. */
  readonly lost: readonly string[];
  /** Blocks with leases that had vanished from the store, and are claimed again. */
  readonly reclaimed: readonly string[];
  /** Whether the store was restored a short while ago: nothing new may be claimed, even of a pool that was read before. */
  readonly restored: boolean;
}

/** A place, and the store that its blocks come from. */
export interface Claimant extends Place {
  readonly store: ObjectStore;
  /** From 0 to 1, as Math.random. */
  random(): number;
  /** Learns what an ADD found that compared the blocks. */
  onCompared?(found: Compared): void;
  /** Waits, as `setTimeout` unless given. */
  pause?(ms: number): Promise<void>;
}

/** Only one process of a node asks the store on behalf of a network at a time. */
const CLAIM_LOCK = '.catena-claim';
/** First and longest pause of those who wait for that process. */
const NAP_MS = { first: 1, longest: 20 };

/** Works on the leases and on the list of blocks, while no other process does. */
export function inPlace<T>(
  place: Place,
  work: (store: LeaseStore, held: Held | undefined) => T,
  options: Omit<StoreOptions, 'reclaim'> = {},
): T {
  return inLeases(place, store => work(store, readHeld(place.dir)), { create: true, ...options });
}

/** Works on the leases alone: they can be released even if the list of blocks cannot be read. */
export function inLeases<T>(
  { dir, reclaim, network, onRestored }: Place,
  work: (store: LeaseStore) => T,
  options: Omit<StoreOptions, 'reclaim'> = {},
): T {
  return withStore(dir, { reclaim, network, onRestored, ...options }, work);
}

/**
 * Seconds for which a comparison counts: a daemon makes one every ten minutes. Others claim what a store has lost no sooner, also by a clock
 * that is fast.
 */
const CONFIRMED_S = 1200;
/** Until the store is asked again after it did not answer. */
const ASK_AGAIN_S = 60;

/**
 * Leases from the blocks that are known to be this node's: none after a boot, or when the daemon was frozen or the node cut off for long, until
 * they were compared with the store: others may have claimed them since.
 */
export function leasing<T>(place: Place, reserve: (store: LeaseStore, held: Held | undefined) => T): T {
  const lease = (store: LeaseStore, held: Held | undefined): T =>
    reserve(store, held && isCompared(place, held) && isConfirmed(place, held) ? held : undefined);
  return inPlace(place, lease);
}

/** Whether the blocks were compared with the store since the node booted. */
export function isCompared({ boot }: Pick<Place, 'boot'>, held: Held): boolean {
  return (held.comparedIn ?? held.boot) === boot;
}

/** Whether the last comparison is recent, or the next is postponed. */
export function isConfirmed(
  { clock }: Pick<Place, 'clock'>,
  { checkedAt, checkedOn = Date.now() }: Pick<Held, 'checkedAt' | 'checkedOn'>,
): boolean {
  // A wall clock that was set costs a comparison more.
  const hasPaused = Math.abs(Date.now() - checkedOn) >= CONFIRMED_S * 1000;
  return checkedAt !== undefined && clock() - checkedAt < CONFIRMED_S && !hasPaused;
}

/** The store does not answer: pods start nevertheless, and one ADD waits for it now and then, not all. */
export function postponeComparison(place: Place): void {
  const checkedAt = place.clock() - CONFIRMED_S + ASK_AGAIN_S;
  changeHeld(place, held => ({ ...held, checkedAt, checkedOn: Date.now() }));
}

/** Changes the list of blocks. @param isDurable asked after the change: see {@link writeHeld} */
export function changeHeld(
  place: Place,
  change: (held: Held, store: LeaseStore) => Held,
  isDurable: () => boolean = () => false,
): Held {
  return inPlace(place, (store, before) => {
    const held = before ?? { ...emptyList(place), boot: place.boot };
    const after = change(held, store);
    if (after !== held) writeHeld(place.dir, after, isDurable());
    return after;
  });
}

/** Looks at the list of blocks and the leases, and changes neither. */
export function lookAt<T>(place: Place, look: (held: Held, store: LeaseStore) => T): T {
  return inPlace(place, (store, held) => look(held ?? { ...emptyList(place), boot: place.boot }, store));
}

export function heldIn(place: Place): Held {
  return lookAt(place, held => held);
}

/** One that was never compared. */
function emptyList({ node, machine }: Place): Held {
  return { node, ...defined({ machine }), boot: '', blocks: [] };
}

export function ownerIn(place: Place): BlockOwner {
  const { node, machine } = heldIn(place);
  return { network: place.network, node, machine };
}

/**
 * Drops what another machine noted, or this one under another name: the disk was copied, or the node renamed while it was off. Only after a
 * boot, so none of the leases is of a container that lives. What was noted of the store stays: it tells whether that was restored since.
 */
function dropForeign(place: Place): void {
  changeHeld(place, (held, leases) => {
    if (isCompared(place, held)) return held;
    const { node, machine } = place;
    if (held.node === node && isSameMachine(held.machine, machine)) return held;
    leases.release(listLeases(place.dir).filter(address => isInBlocks(held.blocks, address)));
    const { newest, known } = held;
    const isCopied = !isSameMachine(held.machine, machine);
    return { ...emptyList(place), ...defined({ newest, known }), ...(isCopied && { copied: true }) };
  });
}

/** Steps of this process, by lock: it takes turns with itself without looking at the file again and again. */
const turns = new Map<string, Promise<unknown>>();

/**
 * Runs a step while no other process of this node asks the store on behalf of the network. The lock ends with the process.
 * @throws CniError 11 when the lock is not available in time
 */
export async function claiming<T>(place: Place, giveUpAt: number, step: () => Promise<T>): Promise<T> {
  const path = join(place.dir, CLAIM_LOCK);
  const before = turns.get(path);
  const turn = (before ?? Promise.resolve()).then(() => withClaimLock(place, path, giveUpAt, step));
  const settled = turn.catch(() => {});
  turns.set(path, settled);
  try {
    return await turn;
  } finally {
    if (turns.get(path) === settled) turns.delete(path);
  }
}

async function withClaimLock<T>(
  place: Place,
  path: string,
  giveUpAt: number,
  step: () => Promise<T>,
): Promise<T> {
  for (let napMs = NAP_MS.first; ; napMs = Math.min(napMs * 2, NAP_MS.longest)) {
    const release = holdFlock(path, { mode: 0o600, directoryMode: 0o755 });
    if (release) {
      try {
        dropForeign(place);
        return await step();
      } finally {
        release();
      }
    }
    if (performance.now() > giveUpAt) {
      throw tryAgainLater(
        `Cannot obtain addresses for network "${place.network}": another process of this node still waits for the store of its pool`,
      );
    }
    await pause(napMs);
  }
}
