// Which blocks belong to nodes that the cluster no longer has?
//
// Any node may find such a block, and frees it after a time of grace by its own clock. It marks the block first: the node that holds it
// takes the mark off when it looks after its blocks, which changes the version, and only the marked version is ever deleted.
import { blockSpecOf, isOwn, kindOf, labelOf } from './block-object.ts';
import type { Orphan } from './held.ts';
import { adoptKept } from './keep.ts';
import { BLOCK_KINDS, POOL_LABEL, type StoredObject } from './objects.ts';
import { type Claimant, changeHeld, ownerIn } from './place.ts';
import { countUsable, type Pool } from './pool.ts';

/** So many of all nodes look at the whole pool in each interval, on average: one alone might be the one that is gone. */
const LOOKERS = 5;
/** Until a node has counted the others. */
const ASSUMED_NODES = 10;
/** Nodes about which one look asks. */
const MOST_ASKED = 100;
/** Objects of one node that are marked in one look: a node can write any number, and each costs requests. */
const MOST_OF_ONE = 1_024;

/**
 * Marks blocks of nodes that are gone, and deletes those that have borne the mark for the time of grace.
 * @returns the names of those that were deleted
 */
export async function collect(claimant: Claimant, pool: Pool, graceS: number): Promise<string[]> {
  const held = changeHeld(claimant, known => known);
  if (claimant.random() < LOOKERS / Math.max(held.nodes ?? ASSUMED_NODES, 1)) await look(claimant, pool);
  return free(claimant, graceS);
}

async function look(claimant: Claimant, pool: Pool): Promise<void> {
  const { store } = claimant;
  const labels = { [POOL_LABEL]: labelOf(pool.name) };
  const byOwner = new Map<string, StoredObject[]>();
  const self = ownerIn(claimant);
  let claimed = 0;
  for (const kind of BLOCK_KINDS)
    for await (const page of store.pages(kind, labels)) {
      claimed += page.length;
      for (const object of page) {
        const spec = blockSpecOf(object);
        if (spec === undefined || isOwn(object, { ...self, network: spec.network })) continue;
        // Another machine of that name is another node.
        const owner = JSON.stringify([spec.node, spec.machine]);
        const before = byOwner.get(owner);
        if (before === undefined) byOwner.set(owner, [object]);
        else if (before.length < MOST_OF_ONE) before.push(object);
      }
    }
  const owners = [...byOwner.keys()];
  const found: Orphan[] = [];
  for (const owner of sample(owners, claimant.random)) {
    const [node, machine] = JSON.parse(owner);
    if ((await store.hasNode(node, machine)) !== false) continue;
    for (const object of byOwner.get(owner) ?? [])
      found.push(...(await mark(claimant, { node, machine }, object)));
  }
  changeHeld(claimant, ({ orphans = [], ...rest }) => {
    const isKnown = (one: Orphan) =>
      orphans.some(({ uid, version }) => uid === one.uid && version === one.version);
    const fresh = found.filter(one => !isKnown(one));
    const kept = orphans.filter(({ uid }) => !fresh.some(one => one.uid === uid));
    const seen = { blocks: countUsable(pool), claimed, nodes: owners.length + 1 };
    return {
      ...rest,
      nodes: seen.nodes,
      pools: { ...rest.pools, [pool.name]: seen },
      orphans: [...kept, ...fresh],
    };
  });
}

/** The object with the mark; none if it has been changed since. */
async function mark(
  { store, clock }: Claimant,
  owner: Pick<Orphan, 'node' | 'machine'>,
  object: StoredObject,
): Promise<Orphan[]> {
  const spec = blockSpecOf(object);
  if (spec === undefined) return [];
  const kind = kindOf(spec) === 'addresses' ? 'addresses' : 'blocks';
  const marked = spec.orphaned
    ? object
    : await store.replace(kind, { ...object, spec: { ...object.spec, orphaned: true } });
  if (marked === undefined) return [];
  const { name, uid, version } = marked;
  return [{ kind, name, uid, version, ...owner, since: clock() }];
}

async function free(claimant: Claimant, graceS: number): Promise<string[]> {
  const { store, clock } = claimant;
  const { orphans = [] } = changeHeld(claimant, held => held);
  const freed: string[] = [];
  for (const { kind, name, uid, version, node, machine, since } of orphans) {
    if (clock() - since < graceS) continue;
    const isGone = (await store.hasNode(node, machine)) === false;
    if (isGone) {
      // What is kept for a claim or a name outlasts its node.
      const isKept = kind === 'addresses' && (await adoptKept(claimant, { name, version }));
      if (!isKept && (await store.remove(kind, { name, uid, version }))) freed.push(name);
    }
    changeHeld(claimant, held => ({ ...held, orphans: held.orphans?.filter(one => one.uid !== uid) }));
  }
  return freed;
}

/** Up to so many of them, at random. */
function sample(names: readonly string[], random: () => number): string[] {
  const keyed = names.map(name => ({ name, key: random() }));
  return keyed
    .sort((a, b) => a.key - b.key)
    .slice(0, MOST_ASKED)
    .map(({ name }) => name);
}
