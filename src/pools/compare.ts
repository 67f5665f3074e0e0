// Does the store have the blocks that this node knows, and no others of it?
import { tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import type { LeaseStore } from '../ipam/lease-store.ts';
import {
  BLOCK_KINDS,
  type BlockOwner,
  blockObject,
  blockSpecOf,
  type Held,
  type HeldBlock,
  heldFrom,
  isEarlier,
  isOwn,
  kindOf,
  labelOf,
  listAll,
  NODE_LABEL,
  type ObjectKind,
  ownedBy,
  type StoredObject,
  termsOf,
} from './held.ts';
import { compareGuests, guestFrom, joinedBy } from './keep.ts';
import { isInUse } from './lease.ts';
import { type Claimant, type Compared, changeHeld, heldIn, isCompared, lookAt, ownerIn } from './place.ts';
import type { Pool } from './pool.ts';
import { isRestored, markRestored } from './restored.ts';

/**
 * Seconds between two looks for blocks that this node holds without knowing it. A server searches the blocks of all nodes for that, so it
 * is asked seldom, and at once when a request was not answered.
 */
const SEARCH_EVERY_S = 6 * 3600;
/** More blocks than these are listed, not read one by one: a list has those of all nodes. */
const MOST_READ_SINGLY = 1024;
const AT_ONCE = 16;

/**
 * Compares this node's blocks with the store; to be called while `claiming`, after what an earlier process began was completed.
 * @param pools those of the network
 * @throws CniError 11 when the store cannot be reached
 */
export async function compare(
  claimant: Claimant,
  pools: readonly Pool[],
  searchEveryS = SEARCH_EVERY_S,
): Promise<Compared> {
  const { boot, clock } = claimant;
  // Not when it ends: the process may be stopped for an hour after it has read what this node has.
  const compared = { comparedIn: boot, checkedAt: clock(), checkedOn: Date.now() };
  let restored = await isRestored(claimant, pools);
  await takeNewName(claimant);
  const before = heldIn(claimant);
  const owner = ownerIn(claimant);
  const { searchedAt = Number.NEGATIVE_INFINITY } = before;
  const isDue = !isCompared(claimant, before) || compared.checkedAt - searchedAt >= searchEveryS;
  const searches = isDue || before.blocks.length > MOST_READ_SINGLY;
  const own = new Map<string, StoredObject>();
  for (const [kind, object] of await (searches ? search(claimant, owner) : readEach(claimant, before))) {
    restored = (await isFromBackup(claimant, object)) || restored;
    const present = isOwn(object, owner) ? await withoutMark(claimant, kind, object) : undefined;
    if (present && isOwn(present, owner)) own.set(object.name, present);
  }
  const shared = await compareGuests(claimant, owner, async object => {
    restored = (await isFromBackup(claimant, object)) || restored;
    return restored;
  });
  for (const object of shared.values()) if (isOwn(object, owner)) own.set(object.name, object);
  const reclaimed = await reclaim(claimant, owner, own, restored);
  const adopted: string[] = [];
  const lost: string[] = [];
  changeHeld(claimant, (held, leases) => {
    const known = held.blocks.flatMap((one): HeldBlock[] => {
      const [object, shares] = [own.get(one.name), shared.get(one.name)];
      const { guest, turn } = (shares && guestFrom(shares)) ?? {};
      if (!object && shares) return [{ ...one, ...defined({ guest, turn }) }];
      const { guest: _, ...block } = one;
      own.delete(block.name);
      if (object) return [ownedAs(block, object)];
      if (!isInUse(block, leases)) return [];
      // One that is idle was there to be taken over.
      if (block.state !== 'lost' && !block.idle) lost.push(block.name);
      return [{ ...block, state: 'lost' }];
    });
    // A store that was restored may name this node for what it gave back since.
    const others = restored ? [] : [...own.values()].flatMap(object => heldFrom(object) ?? []);
    adopted.push(...others.map(({ name }) => name));
    const terms = { ...held.terms, ...Object.fromEntries(pools.map(pool => [pool.name, termsOf(pool)])) };
    const next: Held = { ...held, ...compared, terms, blocks: [...known, ...others] };
    return searches && !restored ? { ...next, searchedAt: compared.checkedAt } : next;
  });
  return { adopted, lost, reclaimed, restored };
}

/** A known block as its object has it. Even if that is another claim of ours: nothing of it was given to others since. */
function ownedAs({ idle: before, ...block }: HeldBlock, object: StoredObject): HeldBlock {
  const { turn, idle: isTold } = blockSpecOf(object) ?? {};
  // What is noted here counts, and what the store does not know yet will be told.
  const idle = isTold ? 'told' : before && 'noted';
  return { ...block, state: 'held', uid: object.uid, ...defined({ turn, idle }) };
}

/** A node that was renamed while its pods run: the cluster no longer has the former one, so the blocks get the new name. */
async function takeNewName(claimant: Claimant): Promise<void> {
  const { store, node } = claimant;
  const former = ownerIn(claimant);
  if (node === former.node || !isCompared(claimant, heldIn(claimant))) return;
  if ((await store.hasNode(former.node)) !== false || (await store.hasNode(node)) !== true) return;
  for (const [kind, object] of await search(claimant, former))
    if (isOwn(object, former)) await takeFrom(claimant, kind, object, { ...former, node });
  for (const object of (await compareGuests(claimant, former, async () => true)).values())
    if (!isOwn(object, former)) await replaced(claimant, 'addresses', joinedBy(object, { ...former, node }));
  changeHeld(claimant, held => ({ ...held, node }));
}

/** What this node has, or believes to have: any node can write objects with a label that names another. */
async function search(claimant: Claimant, owner: BlockOwner): Promise<[ObjectKind, StoredObject][]> {
  const known = new Set(heldIn(claimant).blocks.map(({ name }) => name));
  const isMeant = (object: StoredObject) => known.has(object.name) || isOwn(object, owner);
  const labels = { [NODE_LABEL]: labelOf(owner.node) };
  const found: [ObjectKind, StoredObject][] = [];
  for (const kind of BLOCK_KINDS)
    for (const object of await listAll(claimant.store, kind, labels, isMeant)) found.push([kind, object]);
  return found;
}

async function readEach({ store }: Claimant, { blocks }: Held): Promise<[ObjectKind, StoredObject][]> {
  const found: [ObjectKind, StoredObject][] = [];
  for (let i = 0; i < blocks.length; i += AT_ONCE) {
    const read = blocks.slice(i, i + AT_ONCE).map(async block => {
      const kind = kindOf(block);
      return [kind, await store.find(kind, block.name)] as const;
    });
    for (const [kind, object] of await Promise.all(read)) if (object) found.push([kind, object]);
  }
  return found;
}

/**
 * A kept address counts its changes of hands. The number of the store's last change may be past again what this node knows when it looks,
 * that of the object is not.
 */
async function isFromBackup(claimant: Claimant, object: StoredObject): Promise<boolean> {
  const block = heldIn(claimant).blocks.find(({ name }) => name === object.name);
  if (block === undefined || !isEarlier(object, block)) return false;
  await markRestored(claimant, block.pool, object.version);
  return true;
}

/** Claims again what pods use and the store no longer has, and adds it to what is this node's. @returns the names */
async function reclaim(
  claimant: Claimant,
  owner: BlockOwner,
  own: Map<string, StoredObject>,
  restored: boolean,
): Promise<string[]> {
  const reclaimed: string[] = [];
  // An idle one was there to be taken over: the store knows what became of it.
  const isUsed = (block: HeldBlock, leases: LeaseStore) =>
    !block.idle && !block.guest && isInUse(block, leases);
  for (const block of lookAt(claimant, ({ blocks }, leases) => blocks.filter(one => isUsed(one, leases)))) {
    const present = own.get(block.name);
    // One that is idle in the store was taken up here after the backup from which that is.
    if (present && !blockSpecOf(present)?.idle) continue;
    const object = present
      ? await replaced(claimant, kindOf(block), ownedBy(present, owner))
      : await claimAgain(claimant, block, owner, restored);
    if (object === undefined) continue;
    own.set(object.name, object);
    reclaimed.push(object.name);
  }
  return reclaimed;
}

/**
 * A block with leases whose object has vanished is claimed again, before another node claims it.
 * @param isForced the store was restored, and names a former holder
 * @returns undefined if it is another's
 */
async function claimAgain(
  claimant: Claimant,
  block: HeldBlock,
  owner: BlockOwner,
  isForced: boolean,
): Promise<StoredObject | undefined> {
  const { store } = claimant;
  const kind = kindOf(block);
  const created = await store.create(kind, blockObject(block, owner));
  if (created) return created;
  const found = await store.find(kind, block.name);
  if (found === undefined || isOwn(found, owner)) return found;
  const isBack = isForced || (await isFromBackup(claimant, found));
  return isBack && block.state === 'held' ? takeFrom(claimant, kind, found, owner) : undefined;
}

/** By way of the mark, as a policy of the cluster demands: the former owner is gone, or a mistake of the store. */
async function takeFrom(
  claimant: Claimant,
  kind: ObjectKind,
  object: StoredObject,
  owner: BlockOwner,
): Promise<StoredObject> {
  const marked = await replaced(claimant, kind, { ...object, spec: { ...object.spec, orphaned: true } });
  return replaced(claimant, kind, ownedBy(marked, owner));
}

/** @throws CniError 11 if it has changed since it was read: given up for that, it would be lost, though pods use it */
async function replaced({ store }: Claimant, kind: ObjectKind, object: StoredObject): Promise<StoredObject> {
  const next = await store.replace(kind, object);
  if (next) return next;
  throw tryAgainLater(`Cannot take over "${object.name}": it has been changed since it was read`);
}

/** Another node took this one for vanished: it has not, and says so, which changes the version that the other would delete, unless it has. */
async function withoutMark({ store }: Claimant, kind: ObjectKind, object: StoredObject) {
  if (!blockSpecOf(object)?.orphaned) return object;
  const { orphaned: _, ...spec } = object.spec;
  return (await store.replace(kind, { ...object, spec })) ?? store.find(kind, object.name);
}
