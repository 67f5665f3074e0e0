// Which blocks belong to nodes that the cluster no longer has?
//
// Any node may find such a block, and frees it after a time of grace by its own clock. It marks the block first: the node that holds it
// takes the mark off when it looks after its blocks, which changes the version, and only the marked version is ever deleted.
import { defined } from '../cni/defined.ts';
import { blockSpecOf, isOwn, labelOf } from './block-object.ts';
import type { Orphan } from './held.ts';
import { adoptKept } from './keep.ts';
import { BLOCK_KINDS, POOL_LABEL } from './objects.ts';
import { type Claimant, changeHeld, ownerIn } from './place.ts';
import { countUsable, type Pool } from './pool.ts';

/** So many of all nodes look at the whole pool in each interval, on average: one alone might be the one that is gone. */
const LOOKERS = 5;
/** Until a node has counted the others. */
const ASSUMED_NODES = 10;
/** Nodes about which one look asks. */
const MOST_ASKED = 100;
/** Objects that are marked in one look: a node can write any number, with any names of nodes, and each costs requests. */
const MOST_MARKED = 1_024;

type Owner = Pick<Orphan, 'node' | 'machine'>;

/** A node, and what it has of a pool. */
interface Owned {
  readonly owner: Owner;
  readonly names: [kind: Orphan['kind'], name: string][];
}

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
  // Names alone: objects can be large.
  const byOwner = new Map<string, Owned>();
  const self = ownerIn(claimant);
  let claimed = 0;
  for (const kind of BLOCK_KINDS)
    for await (const page of store.pages(kind, labels)) {
      claimed += page.length;
      for (const object of page) {
        const spec = blockSpecOf(object);
        if (spec === undefined || isOwn(object, { ...self, network: spec.network })) continue;
        // Another machine of that name is another node.
        const { node, machine } = spec;
        const key = JSON.stringify([node, machine]);
        const one: Owned = byOwner.get(key) ?? { owner: { node, ...defined({ machine }) }, names: [] };
        byOwner.set(key, one);
        if (one.names.length < MOST_MARKED) one.names.push([kind, object.name]);
      }
    }
  const owners = [...byOwner.values()];
  const found: Orphan[] = [];
  for (const { owner, names } of sample(owners, claimant.random)) {
    if (found.length >= MOST_MARKED) break;
    if ((await store.hasNode(owner.node, owner.machine)) !== false) continue;
    for (const [kind, name] of names.slice(0, MOST_MARKED - found.length))
      found.push(...(await mark(claimant, owner, kind, name)));
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

/** The object with the mark; none if it has another owner. */
async function mark(
  { store, clock }: Claimant,
  owner: Owner,
  kind: Orphan['kind'],
  name: string,
): Promise<Orphan[]> {
  const object = await store.find(kind, name);
  const spec = object && blockSpecOf(object);
  if (object === undefined || spec?.node !== owner.node || spec.machine !== owner.machine) return [];
  const marked = spec.orphaned
    ? object
    : await store.replace(kind, { ...object, spec: { ...object.spec, orphaned: true } });
  if (marked === undefined) return [];
  return [{ kind, name, uid: marked.uid, version: marked.version, ...owner, since: clock() }];
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
function sample<T>(all: readonly T[], random: () => number): T[] {
  const keyed = all.map(one => ({ one, key: random() }));
  return keyed
    .sort((a, b) => a.key - b.key)
    .slice(0, MOST_ASKED)
    .map(({ one }) => one);
}
