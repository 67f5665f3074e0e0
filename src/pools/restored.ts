// What if the store forgets what nodes know, since it was restored from a backup?
//
// For a while what nodes know counts: each claims again what its pods use, takes up nothing that it does not know, and claims nothing new.
// A node that notices marks the pools for those that knew no number before.

import { type CniError, tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { GROUP, type Held, type ObjectStore, type StoredObject } from './held.ts';
import { type Claimant, changeHeld, heldIn } from './place.ts';
import type { Pool } from './pool.ts';

/** Of a Pool object, while nodes claim again. Who removes it ends that. */
export const RESTORED_ANNOTATION = `${GROUP}/restored`;

/** Twice as long as the longest time between two looks of a daemon at its blocks, with some room for a clock that is fast. */
const SETTLE_S = 1650;

/** Several nodes may notice, or write other annotations, at the same time. */
const ATTEMPTS = 5;

/**
 * Whether the store was restored a short while ago; to be called while `claiming`, before a comparison.
 * @throws CniError 11 when the store cannot be reached
 */
export async function isRestored(claimant: Claimant, pools: readonly Pool[]): Promise<boolean> {
  const { store } = claimant;
  forgetOtherStores(claimant, pools);
  const revision = await store.revision();
  let wentBack = revision !== undefined && revision < (heldIn(claimant).newest ?? 0);
  // Marked before it is noted: a process that ends in between notices again.
  if (wentBack) for (const { name } of pools) await markRestored(claimant, name, String(revision));
  changeHeld(claimant, ({ newest: _, ...held }) => ({ ...held, ...defined({ newest: revision }) }));
  for (const pool of pools) wentBack = (await isAnother(claimant, pool)) || wentBack;
  for (const pool of pools)
    if (pool.restored !== undefined && !isSettling(claimant, pool)) await unmark(store, pool);
  return wentBack || pools.some(({ restored }) => restored !== undefined);
}

/** A copied disk may be of a template in another cluster: its numbers count if it knows one of the pools. */
function forgetOtherStores(claimant: Claimant, pools: readonly Pool[]): void {
  changeHeld(claimant, held => {
    if (!held.copied) return held;
    const { copied: _, newest, known, ...rest } = held;
    const isSameStore = pools.some(({ name, uid }) => uid !== undefined && known?.[name] === uid);
    return isSameStore ? { ...rest, ...defined({ newest, known }) } : rest;
  });
}

/**
 * Compares an object just written, or the number of the store's last change, with what this node knew before.
 * @returns whether the store was restored since then; its pool then bears the mark
 */
export async function isFromBefore(claimant: Claimant, pool: string, version: string): Promise<boolean> {
  const { newest } = heldIn(claimant);
  if (newest === undefined) return false;
  if (Number(version) >= newest) {
    changeHeld(claimant, held => withNewest(held, { version }));
    return false;
  }
  await markRestored(claimant, pool, version);
  return true;
}

/**
 * Notes the number of a change that this node made, so that it notices a store from before it. Without a number of the whole store, as in a
 * directory, each object counts for itself.
 */
export function withNewest(held: Held, { version }: Pick<StoredObject, 'version'>): Held {
  const newest = Number(version);
  return held.newest !== undefined && newest > held.newest ? { ...held, newest } : held;
}

/** Whether the pool's object is another one than this node knew: all objects were deleted. Then it bears the mark. */
export async function isAnother(claimant: Claimant, { name, uid = '' }: Pool): Promise<boolean> {
  const before = heldIn(claimant).known?.[name];
  if (before === uid || uid === '') return false;
  if (before !== undefined) await markRestored(claimant, name, uid);
  changeHeld(claimant, held => ({ ...held, known: { ...held.known, [name]: uid } }));
  return before !== undefined;
}

export function restoredStore({ name }: Pool): CniError {
  return tryAgainLater(`Cannot claim a block of pool "${name}": its store was restored`);
}

/** @throws CniError 11 while nodes claim again what they hold of the pool */
export function refuseWhileSettling(claimant: Claimant, pool: Pool): void {
  if (!isSettling(claimant, pool)) return;
  throw tryAgainLater(
    `Cannot claim addresses of pool "${pool.name}": its store was restored, and nodes may hold addresses that it does not know`,
    {
      details:
        `within half an hour all nodes have claimed theirs again; sooner, call for GC on all of them, and remove annotation ` +
        `"${RESTORED_ANNOTATION}" of the Pool`,
    },
  );
}

/** Whether the pool has borne its mark for too short a time, by this node's clock. */
function isSettling(claimant: Claimant, { name, restored: markOf }: Pool): boolean {
  if (markOf === undefined) return false;
  const { boot, clock } = claimant;
  const now = clock();
  const { restored } = changeHeld(claimant, held => {
    const known = held.restored?.[name];
    if (known?.mark === markOf && known.boot === boot) return held;
    return { ...held, restored: { ...held.restored, [name]: { mark: markOf, boot, since: now } } };
  });
  return now - (restored?.[name]?.since ?? now) < SETTLE_S;
}

/**
 * Puts a new mark on the pool, unless another node has. One that this node knows already is from before: the backup had it.
 * @throws CniError 11 when the object keeps changing: who does not mark it must not note that it noticed
 */
export async function markRestored(claimant: Claimant, name: string, text: string): Promise<void> {
  const { store } = claimant;
  const known = heldIn(claimant).restored?.[name]?.mark;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const object = await store.find('pools', name);
    const present = object?.annotations[RESTORED_ANNOTATION];
    if (object === undefined || (present !== undefined && present !== known)) return;
    const annotations = {
      ...object.annotations,
      [RESTORED_ANNOTATION]: text === present ? `${text}+` : text,
    };
    if (await store.replace('pools', { ...object, annotations })) return;
  }
  throw tryAgainLater(`Cannot mark pool "${name}" as restored: its object keeps changing`);
}

async function unmark(store: ObjectStore, { name, restored }: Pool): Promise<void> {
  const object = await store.find('pools', name);
  const { [RESTORED_ANNOTATION]: present, ...annotations } = object?.annotations ?? {};
  if (object && present === restored) await store.replace('pools', { ...object, annotations });
}
