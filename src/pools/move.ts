// How does a machine that moves to another node have its address on both for a while?
//
// The node that it moves to joins the owner of the kept address: the object names it as `next`, and it is the only one. It may lease the
// address for that machine, and for nothing else. When the attachment of the owner ends, the owner passes the address on instead of
// marking it idle; when that of the guest ends first, it leaves, and nothing has changed.
import { defined } from '../cni/defined.ts';
import {
  type BlockOwner,
  blockObject,
  blockSpecOf,
  heldFrom,
  isOwn,
  isOwner,
  nextTurn,
  ownedBy,
  ownerOf,
} from './block-object.ts';
import type { HeldBlock } from './held.ts';
import { isInUse } from './lease.ts';
import type { StoredObject } from './objects.ts';
import { type Claimant, changeHeld } from './place.ts';

/** What is kept of addresses: one object each. */
const KIND = 'addresses';

/** Whether a node may have a kept address of another beside it: never a third one. */
export function canJoin(object: StoredObject, owner: BlockOwner): boolean {
  const next = blockSpecOf(object)?.next;
  return !isOwn(object, owner) && (next === undefined || isOwner(next, owner));
}

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
export function afterEnd(object: StoredObject, owner: BlockOwner): StoredObject | undefined {
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
  let guests: HeldBlock[] = [];
  const used = new Set<string>();
  changeHeld(claimant, (held, leases) => {
    guests = held.blocks.filter(({ guest }) => guest !== undefined);
    for (const block of guests) if (isInUse(block, leases)) used.add(block.name);
    return held;
  });
  const found = new Map<string, StoredObject>();
  for (const block of guests) {
    const object = await claimant.store.find(KIND, block.name);
    const present = await joinedAgain(
      claimant,
      owner,
      { block, object, isUsed: used.has(block.name) },
      isRestored,
    );
    if (present) found.set(block.name, present);
  }
  return found;
}

interface Guest {
  readonly block: HeldBlock;
  readonly object: StoredObject | undefined;
  readonly isUsed: boolean;
}

async function joinedAgain(
  { store }: Claimant,
  owner: BlockOwner,
  { block, object, isUsed }: Guest,
  isRestored: (object: StoredObject) => Promise<boolean>,
): Promise<StoredObject | undefined> {
  if (object === undefined) {
    if (!isUsed || block.guest === undefined) return undefined;
    // In the name of the one whose attachment has it: that one claims it again, too.
    const { spec, ...rest } = blockObject(block, block.guest);
    const next = ownerOf(owner);
    return (await store.create(KIND, { ...rest, spec: { ...spec, next } })) ?? store.find(KIND, block.name);
  }
  const spec = blockSpecOf(object);
  if (isOwn(object, owner) || isOwner(spec?.next, owner)) return object;
  if (!isUsed || spec?.keptFor !== block.keptFor || spec?.next) return undefined;
  const isIdle = spec?.idle && !(await isRestored(object));
  return (await store.replace(KIND, isIdle ? ownedBy(object, owner) : joinedBy(object, owner))) ?? object;
}
