// Does the store have the blocks that this node knows, and no others of it?
import { blockSpecOf, heldFrom, isOwn, kindOf } from './block-object.ts';
import type { Held, HeldBlock } from './held.ts';
import { labelOf } from './label.ts';
import { isInUse } from './lease.ts';
import { type Kind, NODE_LABEL, type StoredObject } from './objects.ts';
import { type Claimant, changeHeld, isCompared } from './place.ts';

/** What a comparison found. */
export interface Compared {
  /** Blocks of this node that it did not know: a request was done after it had been given up. */
  readonly adopted: readonly string[];
  /** Blocks that the store gave to others, or forgot. */
  readonly lost: readonly string[];
}

const KINDS: readonly Kind[] = ['blocks', 'addresses'];

/**
 * Seconds between two looks for blocks that this node holds without knowing it. A server searches the blocks of all nodes for that, so it
 * is asked seldom, and at once when a request was not answered.
 */
const SEARCH_EVERY_S = 6 * 3600;
/** More blocks than these are listed, not read one by one: a list has those of all nodes. */
const MOST_READ_SINGLY = 1024;
/** Requests at a time. */
const AT_ONCE = 16;

/**
 * Compares this node's blocks with the store; to be called while `claiming`, after what an earlier process began was completed.
 * @throws CniError 11 when the store cannot be reached
 */
export async function compare(claimant: Claimant, searchEveryS = SEARCH_EVERY_S): Promise<Compared> {
  const { network, boot, clock } = claimant;
  const before = changeHeld(claimant, held => held);
  const { node, searchedAt = Number.NEGATIVE_INFINITY } = before;
  const isDue = !isCompared(claimant, before) || clock() - searchedAt >= searchEveryS;
  const searches = isDue || before.blocks.length > MOST_READ_SINGLY;
  const listed: StoredObject[] = [];
  for (const [kind, object] of await (searches ? search(claimant, node) : readEach(claimant, before))) {
    if (!isOwn(object, { node, network })) continue;
    listed.push((await reclaimed(claimant, kind, object)) ?? object);
  }
  const byName = new Map(listed.map(object => [object.name, object]));
  const adopted: string[] = [];
  const lost: string[] = [];
  changeHeld(claimant, (held, leases) => {
    const known = held.blocks.flatMap((block): HeldBlock[] => {
      const object = byName.get(block.name);
      byName.delete(block.name);
      // Even if it is another claim of ours: nothing of it was given to others since.
      if (object) return [{ ...block, state: 'held', uid: object.uid, ...idleOf(block, object) }];
      // One that is idle was there to be taken over.
      if (block.state !== 'lost' && !block.idle) lost.push(block.name);
      return isInUse(block, leases) ? [{ ...block, state: 'lost' }] : [];
    });
    const others = [...byName.values()].flatMap(object => heldFrom(object) ?? []);
    adopted.push(...others.map(({ name }) => name));
    const next: Held = { ...held, comparedIn: boot, blocks: [...known, ...others] };
    return searches ? { ...next, searchedAt: clock() } : next;
  });
  return { adopted, lost };
}

async function search({ store }: Claimant, node: string): Promise<[Kind, StoredObject][]> {
  const found: [Kind, StoredObject][] = [];
  for (const kind of KINDS)
    for (const object of await store.list(kind, { [NODE_LABEL]: labelOf(node) })) found.push([kind, object]);
  return found;
}

async function readEach({ store }: Claimant, { blocks }: Held): Promise<[Kind, StoredObject][]> {
  const found: [Kind, StoredObject][] = [];
  for (let i = 0; i < blocks.length; i += AT_ONCE) {
    const read = blocks.slice(i, i + AT_ONCE).map(async block => {
      const kind = kindOf(block);
      return [kind, await store.find(kind, block.name)] as const;
    });
    for (const [kind, object] of await Promise.all(read)) if (object) found.push([kind, object]);
  }
  return found;
}

/** What is noted here counts, and what the store does not know yet will be told. */
function idleOf({ idle }: HeldBlock, object: StoredObject): Pick<HeldBlock, 'idle'> {
  const isTold = blockSpecOf(object)?.idle === true;
  return isTold ? { idle: 'told' } : idle ? { idle: 'noted' } : {};
}

/** Another node took this one for vanished: it has not, and says so, which changes the version that the other would delete. */
async function reclaimed(
  { store }: Claimant,
  kind: Kind,
  object: StoredObject,
): Promise<StoredObject | undefined> {
  if (!blockSpecOf(object)?.orphaned) return undefined;
  const { orphaned: _, ...spec } = object.spec;
  return store.replace(kind, { ...object, spec });
}
