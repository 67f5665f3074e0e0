// Which nodes does a Kubernetes cluster have, with the ranges of each?
//
// Node objects have the addresses. The ranges are those that the cluster assigned (`spec.podCIDRs`), or the blocks that the nodes claimed
// by the plugin `cluster`: objects of their own, which come and go more often.

import { defined, isObject, type JsonObject, textsIn } from '../cni/json.ts';
import { openApiServer, serverAddress } from '../delegate/api-server.ts';
import type { ClusterAccess } from '../delegate/cluster.ts';
import { WATCH_LIMITS, type WatchLimits, watchObjects } from '../delegate/object-watch.ts';
import { findCidr, findIp, renderCidr } from '../net/ip.ts';
import { type Division, divisionOf, isBlockOf } from '../pools/find-pool.ts';
import { API_VERSION, blockSpecOf, routedCidrsOf } from '../pools/held.ts';
import { startTimer } from '../wait.ts';
import { MOST_OF_ONE, type NodeEvents, type NodeSource } from './claims.ts';
import { type DescribedNode, nodeOf } from './note.ts';
import type { BLOCKS, KUBERNETES } from './plan.ts';

/** Several changes often come together. */
const GATHER_MS = 50;

/** Blocks of 64 addresses for a million pods, at 100 characters each. One node has more than {@link MOST_OF_ONE}, or it does not. */
const LIMITS: WatchLimits = {
  ...WATCH_LIMITS,
  ...{ objects: 50_000, ofOne: 2 * MOST_OF_ONE, characters: 32 * 1024 * 1024 },
};

interface ClaimedBlock {
  readonly name: string;
  readonly pool: string;
  readonly node: string;
  /** Another node found that its node has vanished. */
  readonly isOrphaned: boolean;
  readonly cidrs: readonly string[];
}

/**
 * Lists the objects once and follows their changes. While the server cannot be reached nothing is told but the problem, so the nodes that
 * were known last still count.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export function openKubernetesSource(
  access: ClusterAccess,
  events: NodeEvents,
  ranges: typeof KUBERNETES | typeof BLOCKS,
  limits = LIMITS,
): NodeSource {
  let told = '';
  const tellProblem = (problem: string): void => {
    told = '';
    events.problem(problem);
  };
  const changes = gatherChanges(() => {
    const problems: string[] = [];
    const claimed = blocks && pools && (ofPools(blocks.all(), pools.all(), problems) ?? 'unknown');
    const all = withBlocks(nodes.all(), claimed);
    if (all === undefined) {
      if (!changes.areComplete()) changes.add();
      else if (watches.every(({ isFresh }) => isFresh))
        tellProblem('the cluster has more nodes or blocks than this daemon keeps');
      return;
    }
    // A node's status changes often, but seldom what matters here.
    const text = JSON.stringify([all, problems]);
    if (text === told) return;
    told = text;
    events.nodes(all.map(nodeOf), { never, problems });
  });
  const server = openApiServer(access);
  const host = findIp(new URL(serverAddress(access)).hostname.replace(/^\[|\]$/g, ''));
  const never = host ? [host] : [];
  const noted = { onChange: changes.add, onDelete: changes.add, onOpen: changes.completeAfter };
  const follow = <T>(
    path: string,
    keep: (object: JsonObject) => T | undefined,
    ownerOf?: (kept: T) => string,
  ) => {
    const what = { path, keep, ...defined({ ownerOf }), ...noted };
    return watchObjects<T>(server, what, ({ message }) => tellProblem(message), limits);
  };
  const nodes = follow('api/v1/nodes', describedNode);
  const blocks =
    ranges === 'blocks' ? follow(`apis/${API_VERSION}/blocks`, claimedBlock, ({ node }) => node) : undefined;
  const pools = ranges === 'blocks' ? follow(`apis/${API_VERSION}/pools`, dividedPool) : undefined;
  const watches = [nodes, blocks, pools].filter(one => one !== undefined);
  return {
    close() {
      changes.forget();
      for (const one of watches) one.close();
    },
  };
}

/** Calls once for changes that come together, and not before those of an interruption have come. */
function gatherChanges(tell: () => void) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let completeFrom = 0;
  const add = (): void => {
    timer ??= startTimer(
      () => {
        timer = undefined;
        tell();
      },
      Math.max(GATHER_MS, completeFrom - performance.now() + 1),
    );
    timer.unref();
  };
  return {
    add,
    /** Events of an interruption may still be on the way; while there is no watch, the next one begins with another call. */
    completeAfter(ms: number): void {
      completeFrom = Math.max(completeFrom, performance.now() + ms);
      add();
    },
    areComplete: () => performance.now() >= completeFrom,
    forget: () => clearTimeout(timer),
  };
}

/** Nodes by name, with the ranges that count; undefined while something is unknown. */
function withBlocks(
  nodes: readonly DescribedNode[] | undefined,
  blocks: readonly ClaimedBlock[] | 'unknown' | undefined,
): DescribedNode[] | undefined {
  if (nodes === undefined || blocks === 'unknown') return undefined;
  const sorted = nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  if (blocks === undefined) return sorted;
  const claimed = new Map<string, string[]>();
  const names = new Set(sorted.map(({ name }) => name));
  for (const { node, cidrs, isOrphaned } of blocks)
    if (names.has(node) || !isOrphaned) claimed.set(node, [...(claimed.get(node) ?? []), ...cidrs]);
  // A node that was renamed, for example: without an address it gets no route, which is told.
  const unknown = [...claimed.keys()].filter(name => !names.has(name)).sort();
  return [...sorted, ...unknown.map(name => ({ name, addresses: [] }))].map(one => ({
    ...one,
    blocks: (claimed.get(one.name) ?? []).sort(),
  }));
}

/** What matters of a Node: its InternalIPs, and the ranges of its pods. */
export function describedNode({ metadata, spec, status }: JsonObject): DescribedNode | undefined {
  const { name, creationTimestamp: since } = isObject(metadata) ? metadata : {};
  if (typeof name !== 'string') return undefined;
  const { podCIDRs, podCIDR } = isObject(spec) ? spec : {};
  const { addresses } = isObject(status) ? status : {};
  const internal = (Array.isArray(addresses) ? addresses : []).flatMap(one =>
    isObject(one) && one.type === 'InternalIP' && typeof one.address === 'string' ? one.address : [],
  );
  const blocks = Array.isArray(podCIDRs) ? podCIDRs : [podCIDR];
  return {
    name,
    addresses: internal,
    blocks: blocks.filter(one => typeof one === 'string'),
    ...(typeof since === 'string' ? { since } : {}),
  };
}

/** What matters of a Block: its node, and the subnets that lead to that node. */
function claimedBlock({ metadata, spec }: JsonObject): ClaimedBlock | undefined {
  const { name } = isObject(metadata) ? metadata : {};
  const block = isObject(spec) ? blockSpecOf({ spec }) : undefined;
  return (
    block && {
      name: String(name),
      pool: block.pool,
      node: block.node,
      cidrs: routedCidrsOf(block).map(renderCidr),
      isOrphaned: block.orphaned === true,
    }
  );
}

/** What matters of a Pool: how it is divided. */
function dividedPool({ metadata, spec }: JsonObject): Division & { readonly pool: string } {
  const { name, annotations } = isObject(metadata) ? metadata : {};
  const division = divisionOf({ annotations: textsIn(annotations), spec: isObject(spec) ? spec : {} });
  return { ...division, pool: String(name) };
}

/** Blocks as their pools are divided: any node can write an object that claims a part of another's block. */
function ofPools(
  blocks: readonly ClaimedBlock[] | undefined,
  pools: readonly (Division & { readonly pool: string })[] | undefined,
  problems: string[],
): ClaimedBlock[] | undefined {
  if (blocks === undefined || pools === undefined) return undefined;
  const byName = new Map(pools.map(one => [one.pool, one]));
  return blocks.filter(({ name, pool, node, cidrs }) => {
    const division = byName.get(pool);
    const parsed = cidrs.flatMap(text => findCidr(text) ?? []);
    if (cidrs.length === 0 || (division && isBlockOf(division, pool, name, parsed))) return true;
    problems.push(
      `block "${name}" of node "${node}", ${cidrs.join(', ')}, is none that pool "${pool}" has: it gets no route`,
    );
    return false;
  });
}
