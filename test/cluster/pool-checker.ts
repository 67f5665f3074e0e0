// Do the nodes of a cluster, their pods and the API server agree on which node has which address, whenever they are looked at?

import { tryListLeases } from '../../src/ipam/lease-files.ts';
import { API_VERSION, isOwn, readHeld } from '../../src/pools/held.ts';
import type { Row } from '../helpers/netns.ts';
import { type CheckedNode, findContradictions, findWronglyLeased } from '../simulator/checker.ts';
import type { Cluster } from './cluster.ts';
import { type Living, livingOn } from './living.ts';
import type { Node } from './node.ts';

/** Pause between two looks. */
const EVERY_MS = 1000;
/** Nodes are looked at one after the other, so what contradicts itself is a problem only if it still does after this pause. */
const AGAIN_MS = 500;

/** What is watched. */
export interface WatchedPools {
  /** Names of networks, which are those of lease directories. */
  readonly networks: readonly string[];
  isOfPool(address: string): boolean;
}

/** Watching, and what was seen so far. */
export interface PoolWatch {
  readonly problems: ReadonlySet<string>;
  /** Looks at the nodes, and comparisons with the API server. */
  readonly looks: number;
  readonly comparisons: number;
  /** Addresses in pods, counted again for each pod, and objects with different uids. */
  readonly used: number;
  readonly claimed: number;
  readonly returned: number;
  stop(): Promise<void>;
}

/** A block, or a single address, as the API server has it. */
export interface PoolObject {
  readonly metadata: { name: string; uid: string; resourceVersion: string };
  readonly spec: Row;
  readonly [key: string]: unknown;
}

/** A node whose pods are looked at, too. */
export interface NodeWithPods {
  readonly name: string;
  readonly living: readonly Living[];
  readonly networks: readonly CheckedNode[];
}

/** Looks at every lease, every block and every pod's addresses, until it is stopped. */
export function watchPools(cluster: Cluster, pools: WatchedPools): PoolWatch {
  const problems = new Set<string>();
  const used = new Set<string>();
  const claimed = new Set<string>();
  const counts = { looks: 0, comparisons: 0, present: 0 };
  let isOver = false;
  const keepLooking = async (look: () => Promise<string[]>): Promise<void> => {
    while (!isOver) {
      for (const problem of await confirmed(look)) problems.add(problem);
      await Bun.sleep(EVERY_MS);
    }
  };
  const lookAtNodes = async (): Promise<string[]> => {
    counts.looks++;
    const nodes = lookAt(cluster, pools);
    for (const { name, living } of nodes)
      for (const { netns, addresses } of living)
        for (const address of addresses.filter(pools.isOfPool)) used.add(`${name} ${netns} ${address}`);
    return findWronglyHeld(nodes, pools);
  };
  const compare = async (): Promise<string[]> => {
    const before = nodesOf(cluster, pools);
    const objects = await objectsOf(cluster, pools);
    if (objects === undefined) return [];
    counts.comparisons++;
    counts.present = objects.size;
    for (const { metadata } of objects.values()) claimed.add(metadata.uid);
    return findUnclaimed(before, objects);
  };
  const running = [keepLooking(lookAtNodes), keepLooking(compare)];
  return {
    problems,
    get looks() {
      return counts.looks;
    },
    get comparisons() {
      return counts.comparisons;
    },
    get used() {
      return used.size;
    },
    get claimed() {
      return claimed.size;
    },
    get returned() {
      return claimed.size - counts.present;
    },
    async stop() {
      isOver = true;
      await Promise.all(running);
    },
  };
}

/** What is wrong when nothing changes: every object belongs to a node, which knows it. @throws Error if the API server does not answer */
export async function findDisagreements(cluster: Cluster, pools: WatchedPools): Promise<string[]> {
  const objects = await objectsOf(cluster, pools);
  if (objects === undefined) throw new Error('the API server does not answer');
  return pools.networks.flatMap(network => {
    const own = new Map([...objects].filter(([, { spec }]) => spec.network === network));
    const nodes = cluster.nodes.map(node => checkedNode(node, network));
    return findContradictions({ objects: own }, nodes);
  });
}

/** The leases of all nodes. */
export function leasesOf(cluster: Cluster, pools: WatchedPools): string[] {
  return nodesOf(cluster, pools).flatMap(node => node.leases().map(address => `${address} on ${node.name}`));
}

/** The blocks of a network, as its nodes know them. */
export function blocksOf(cluster: Cluster, network: string): string[] {
  return cluster.nodes.flatMap(node =>
    checkedNode(node, network)
      .blocks()
      .map(({ name }) => name),
  );
}

/** The addresses that the pods of a node have. */
export function usedOn({ machine }: Node, { isOfPool }: WatchedPools): string[] {
  return livingOn(machine).flatMap(({ addresses }) => addresses.filter(isOfPool));
}

/** Addresses with two pods, leases on two nodes, addresses without a lease, leases without a block, and lost blocks. */
export function findWronglyHeld(
  nodes: readonly NodeWithPods[],
  { networks, isOfPool }: WatchedPools,
): string[] {
  const problems: string[] = [];
  const users = new Map<string, string>();
  for (const { name, living, networks: own } of nodes) {
    const leases = new Set(own.flatMap(network => network.leases()));
    for (const { netns, addresses } of living) {
      const user = `${netns} of ${name}`;
      for (const address of addresses.filter(isOfPool)) {
        const other = users.get(address);
        if (other) problems.push(`${address} is used in ${other} and in ${user}`);
        users.set(address, user);
        if (!leases.has(address)) problems.push(`${address} is used in ${user} without a lease`);
      }
    }
    for (const { state, name: block } of own.flatMap(network => network.blocks()))
      if (state === 'lost') problems.push(`${name} has lost "${block}"`);
  }
  const ofNetwork = (wanted: string) =>
    nodes.flatMap(node => node.networks.filter(({ claimant }) => claimant.network === wanted));
  return [...problems, ...networks.flatMap(network => findWronglyLeased(ofNetwork(network)))];
}

/** Blocks that a node hands addresses out of, though their objects are gone, or another's. */
export function findUnclaimed(
  nodes: readonly CheckedNode[],
  objects: ReadonlyMap<string, PoolObject>,
): string[] {
  const byName = new Map(Array.from(objects.values(), object => [object.metadata.name, object] as const));
  return nodes.flatMap(({ name: node, claimant: { network }, blocks }) =>
    blocks()
      .filter(({ state }) => state === 'held')
      .flatMap(({ name, uid }) => {
        const object = byName.get(name);
        if (object === undefined) return [`${node} holds "${name}", of which there is no object`];
        const { metadata, spec } = object;
        const stored = { ...metadata, version: '', labels: {}, annotations: {}, spec };
        if (metadata.uid === uid && isOwn(stored, { node, network })) return [];
        return [`${node} holds "${name}", whose object is of ${spec.node}`];
      }),
  );
}

/** The pods first, then the leases: what a pod has was leased before. */
function lookAt(cluster: Cluster, pools: WatchedPools): NodeWithPods[] {
  const living = cluster.nodes.map(({ machine }) => livingOn(machine));
  return cluster.nodes.map((node, i) => ({
    name: node.place.name,
    living: living[i] ?? [],
    networks: pools.networks.map(network => checkedNode(node, network)),
  }));
}

function nodesOf({ nodes }: Cluster, { networks }: WatchedPools): CheckedNode[] {
  return nodes.flatMap(node => networks.map(network => checkedNode(node, network)));
}

/** The leases first, then the blocks: what is leased was claimed before. */
function checkedNode({ place, machine }: Node, network: string): CheckedNode {
  const dir = machine.path(`/var/lib/cni/networks/${network}`);
  const leases = tryListLeases(dir);
  const blocks = readHeld(dir)?.blocks ?? [];
  return { name: place.name, claimant: { network }, leases: () => leases, blocks: () => blocks };
}

/** Blocks and single addresses by path; undefined while the API server is away. */
async function objectsOf(
  { kubectl }: Cluster,
  { networks }: WatchedPools,
): Promise<Map<string, PoolObject> | undefined> {
  const found = new Map<string, PoolObject>();
  for (const kind of ['blocks', 'addresses']) {
    const path = `/apis/${API_VERSION}/${kind}`;
    const text = await kubectl.try('get', '--raw', path);
    if (text === undefined) return undefined;
    const items: PoolObject[] = JSON.parse(text).items;
    for (const item of items)
      if (networks.includes(item.spec.network)) found.set(`${path}/${item.metadata.name}`, item);
  }
  return found;
}

/** What a second look finds again. */
async function confirmed(look: () => Promise<string[]>): Promise<string[]> {
  const tried = () => look().catch(error => [String(error)]);
  const first = await tried();
  if (first.length === 0) return [];
  await Bun.sleep(AGAIN_MS);
  const again = new Set(await tried());
  return first.filter(problem => again.has(problem));
}
