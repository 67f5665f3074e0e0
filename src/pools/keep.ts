// How does a pod get the address of the pod before it, on another node, too, and a machine that moves keep its own?
//
// README.md says it: a kept address changes hands by replacement, and a machine that moves joins as the `next` of the object.

import { type CniError, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { renderIp } from '../net/ip.ts';
import {
  type BlockOwner,
  blockObject,
  blockSpecOf,
  type Held,
  type HeldBlock,
  heldFrom,
  isOwn,
  isOwner,
  KEPT_LABEL,
  labelOf,
  listAll,
  nextTurn,
  type ObjectStore,
  ownedBy,
  ownerOf,
  POOL_LABEL,
  type StoredObject,
} from './held.ts';
import { blockContains, claimOfKey, isInUse, type Wish } from './lease.ts';
import { type Claimant, changeHeld, lookAt, ownerIn } from './place.ts';
import type { Pool } from './pool.ts';
import { isFromBefore, restoredStore, withNewest } from './restored.ts';

/** What is kept of addresses: one object each. */
const KIND = 'addresses';

/** The same object, with the one that has the address as well. It is its owner who takes its marks off. */
export function joinedBy(object: StoredObject, owner: BlockOwner): StoredObject {
  return withNext(object, ownerOf(owner));
}

function withNext(object: StoredObject, next: BlockOwner | undefined): StoredObject {
  const { next: _, ...spec } = object.spec;
  const { turn } = nextTurn(object, undefined).spec;
  return { ...object, spec: { ...spec, turn, ...defined({ next }) } };
}

/** The same object in the hands of the one that has joined; undefined if there is none. */
export function handedOn(object: StoredObject): StoredObject | undefined {
  const next = blockSpecOf(object)?.next;
  return next && ownedBy(object, next);
}

/** What becomes of an object when the attachment of a node ends; undefined if the node has no part in it. */
function afterEnd(object: StoredObject, owner: BlockOwner): StoredObject | undefined {
  if (isOwn(object, owner)) return handedOn(object) ?? nextTurn(object, true);
  return isOwner(blockSpecOf(object)?.next, owner) ? withNext(object, undefined) : undefined;
}

/** A block as the node has it that has joined. */
export function guestFrom(object: StoredObject): HeldBlock | undefined {
  const block = heldFrom(object);
  const spec = blockSpecOf(object);
  return block && spec && { ...block, guest: ownerOf(spec) };
}

/**
 * Compares what this node has as a guest with the store, and joins again where that was forgotten.
 * @param isRestored what the store says of idle addresses may be from before
 * @returns by name, what the store has now: an object of this node's own was passed on to it; absent is what another has
 */
export async function compareGuests(
  claimant: Claimant,
  owner: BlockOwner,
  isRestored: (object: StoredObject) => Promise<boolean>,
): Promise<Map<string, StoredObject>> {
  const guests = lookAt(claimant, ({ blocks }, leases) =>
    blocks.filter(({ guest }) => guest).map(block => ({ block, isUsed: isInUse(block, leases) })),
  );
  const found = new Map<string, StoredObject>();
  for (const { block, isUsed } of guests) {
    const present = await joinedAgain(claimant.store, owner, block, isUsed, isRestored);
    if (present) found.set(block.name, present);
  }
  return found;
}

async function joinedAgain(
  store: ObjectStore,
  owner: BlockOwner,
  block: HeldBlock,
  isUsed: boolean,
  isRestored: (object: StoredObject) => Promise<boolean>,
): Promise<StoredObject | undefined> {
  const object = await store.find(KIND, block.name);
  const again = () => joinedAgain(store, owner, block, isUsed, isRestored);
  if (object === undefined) {
    if (!isUsed || block.guest === undefined) return undefined;
    // In the name of the one whose attachment has it: that one claims it again, too.
    const { spec, ...rest } = blockObject(block, block.guest);
    const next = ownerOf(owner);
    return (await store.create(KIND, { ...rest, spec: { ...spec, next } })) ?? again();
  }
  const spec = blockSpecOf(object);
  if (isOwn(object, owner) || isOwner(spec?.next, owner)) return object;
  if (!isUsed || spec?.keptFor !== block.keptFor || spec?.next) return undefined;
  const isIdle = spec?.idle && !(await isRestored(object));
  return (await store.replace(KIND, isIdle ? ownedBy(object, owner) : joinedBy(object, owner))) ?? again();
}

/**
 * Takes over what is kept for the wish, if that is anywhere; to be called while `claiming`.
 * @returns false if nothing is kept, or what is kept is in use and another address will do
 * @throws CniError 11 when it is in use and no other will do, or another node was faster
 */
export async function takeOver(claimant: Claimant, pool: Pool, wish: Wish): Promise<boolean> {
  const { keptFor, isPromise } = wish;
  if (keptFor === undefined) return false;
  // What has ended here may be that of the machine that has moved on.
  await tellIdle(claimant);
  const labels = { [POOL_LABEL]: labelOf(pool.name), [KEPT_LABEL]: labelOf(keptFor) };
  for (const object of await listAll(claimant.store, KIND, labels)) {
    const spec = blockSpecOf(object);
    const block = heldFrom(object);
    if (spec?.keptFor !== keptFor || block === undefined) continue;
    // It was kept before a claim was given others.
    if (!wish.addresses.every(ip => blockContains(block, ip))) continue;
    // On another node the store knows whether it is in use; of this one, its leases: it may have it as a guest.
    const isLeased = lookAt(claimant, (_, leases) => isInUse(block, leases));
    const owner = ownerIn(claimant);
    // Whether it was this node's before or not: a late request of another then has the wrong version.
    if (!isLeased && (isOwn(object, owner) || spec.idle))
      return take(claimant, pool, ownedBy(object, owner), heldFrom);
    // Beside the node that has it, and later from that one; never as a third one.
    const canJoin = !isOwn(object, owner) && (spec.next === undefined || isOwner(spec.next, owner));
    if (wish.joins && !isLeased && canJoin) return take(claimant, pool, joinedBy(object, owner), guestFrom);
    if (isPromise) throw inUseBy(object.name, spec.node);
  }
  return false;
}

async function take(
  claimant: Claimant,
  pool: Pool,
  object: StoredObject,
  blockOf: typeof heldFrom,
): Promise<true> {
  const replaced = await claimant.store.replace(KIND, object);
  const block = replaced && blockOf(replaced);
  if (replaced === undefined || block === undefined) {
    throw tryAgainLater(`Cannot take over address "${object.name}": another node was faster`);
  }
  // Its holder since then claims it again.
  if (await isFromBefore(claimant, pool.name, replaced.version)) throw restoredStore(pool);
  changeHeld(claimant, held => withBlock(held, block));
  return true;
}

/** Keeps the address of a node that has vanished, on behalf of those for whom it is. @returns whether that very version was replaced */
export async function adoptKept(
  claimant: Claimant,
  { name, version }: Pick<StoredObject, 'name' | 'version'>,
): Promise<boolean> {
  const object = await claimant.store.find(KIND, name);
  if (object?.version !== version || blockSpecOf(object)?.keptFor === undefined) return false;
  const owner = ownerIn(claimant);
  const replaced = await claimant.store.replace(KIND, handedOn(object) ?? ownedBy(object, owner, true));
  const block = replaced && isOwn(replaced, owner) ? heldFrom(replaced) : undefined;
  if (replaced && block) changeHeld(claimant, held => withNewest(withBlock(held, block), replaced));
  return replaced !== undefined;
}

/**
 * Tells the store which kept addresses no attachment has any longer, or none of this node; to be called while `claiming`.
 * @throws CniError 11 when the store cannot be reached: it is told later
 */
export async function tellIdle(claimant: Claimant): Promise<void> {
  const { store } = claimant;
  // Durably: after a power failure, an address that another node has must not count as this one's.
  const { blocks } = changeHeld(
    claimant,
    (held, leases) => {
      const isNewlyIdle = (block: HeldBlock): boolean =>
        block.state === 'held' && block.keptFor !== undefined && !block.idle && !isInUse(block, leases);
      if (!held.blocks.some(isNewlyIdle)) return held;
      const noted = (block: HeldBlock): HeldBlock =>
        isNewlyIdle(block) ? { ...block, idle: 'noted' } : block;
      return { ...held, blocks: held.blocks.map(noted) };
    },
    () => true,
  );
  for (const { name } of blocks.filter(({ idle }) => idle === 'noted')) {
    const object = await store.find(KIND, name);
    const owner = ownerIn(claimant);
    const ended = object && afterEnd(object, owner);
    const told = ended && (await store.replace(KIND, ended));
    if (ended && told === undefined) continue;
    changeHeld(claimant, held => {
      const blocks = held.blocks.flatMap((one): HeldBlock[] => {
        if (one.name !== name) return [one];
        const { guest: _, ...block } = one;
        return told && isOwn(told, owner)
          ? [{ ...block, ...defined({ turn: blockSpecOf(told)?.turn }), idle: 'told' as const }]
          : [];
      });
      return told ? withNewest({ ...held, blocks }, told) : { ...held, blocks };
    });
  }
}

/** Names of those kept addresses whose claims have been deleted. */
export async function findEndedClaims({ store }: Claimant, { blocks }: Held): Promise<ReadonlySet<string>> {
  const ended = new Set<string>();
  for (const { name, keptFor, idle } of blocks) {
    const claim = keptFor && idle ? claimOfKey(keptFor) : undefined;
    if (claim && (await store.hasClaim(claim)) === false) ended.add(name);
  }
  return ended;
}

/** @throws CniError 7 when the pool has blocks: an address of one cannot go to another node */
export function refuseBlocks({ name, blockSize }: Pool): void {
  if (blockSize === 1) return;
  throw invalidConfig(
    `Cannot allocate a particular address from pool "${name}": its blocks have ${blockSize} addresses, which stay on their nodes`,
    {
      details:
        'claims, "keep" and requested addresses need a pool of single addresses: "layout": "flat", "blockSize": 1',
    },
  );
}

export function notInPool({ name }: Pool, { addresses }: Wish): CniError {
  const problem =
    addresses.length === 1
      ? 'it is excluded, that of a router, a network or a broadcast, or outside of its subnets'
      : 'it does not hand them out together';
  return invalidConfig(
    `Cannot allocate ${addresses.map(renderIp).join(', ')} from pool "${name}": ${problem}`,
  );
}

export async function inUse({ store }: Claimant, name: string): Promise<CniError> {
  const object = await store.find(KIND, name);
  return inUseBy(name, object && blockSpecOf(object)?.node);
}

function inUseBy(name: string, node: string | undefined): CniError {
  return tryAgainLater(
    `Cannot allocate address "${name}": an attachment${node ? ` on node "${node}"` : ''} still has it`,
    { details: `"kubectl get addresses.catena.cni.cncf.io ${name} -o yaml" shows for whom it is` },
  );
}

function withBlock(held: Held, block: HeldBlock): Held {
  return { ...held, blocks: [...held.blocks.filter(({ name }) => name !== block.name), block] };
}
