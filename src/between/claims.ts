// What must be known of a cluster's nodes, which node has each block, and which blocks get no route?
//
// Every node of a cluster may announce anything. So a block counts only where blocks may be, never takes packets of this node's own pods
// elsewhere, and of two nodes whose blocks overlap, the one that was there first has it.
import {
  type Cidr,
  cidrContains,
  cidrsOverlap,
  type Ip,
  lastOf,
  parseCidr,
  renderCidr,
  renderIp,
  subnetOf,
} from '../net/ip.ts';

export interface RouteLimits {
  /** A block lies in one of these; undefined: it may be anywhere. */
  readonly within?: readonly Cidr[] | undefined;
  /** Addresses that no block contains. */
  readonly never: readonly Ip[];
}

/** Wider blocks are halves and quarters of a default route. */
const WIDEST = { 4: 8, 6: 16 } as const;
/** Loopback, link-local and multicast addresses lead to no pod of another node. */
const NEVER = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/3',
  '::/16',
  'fe80::/10',
  'ff00::/8',
].map(parseCidr);

/** Blocks of 64 addresses for 65,000 pods. What one node announces costs every other one routes and time. */
export const MOST_OF_ONE = 1_024;

interface Claim {
  readonly node: ClusterNode;
  readonly block: Cidr;
  readonly key: string;
  isAccepted: boolean;
}

/** The order of claims to one address: this node's own, then the older node's, then the first by name. */
export function compareNodes(own: string): (a: ClusterNode, b: ClusterNode) => number {
  return (a, b) =>
    Number(b.name === own) - Number(a.name === own) ||
    compareText(a.since ?? '', b.since ?? '') ||
    compareText(a.name, b.name);
}

/** Blocks that count, by name of their node. @param problems gets why the others do not */
export function claimBlocks(
  nodes: readonly ClusterNode[],
  own: string,
  limits: RouteLimits,
  problems: string[],
): Map<string, Cidr[]> {
  const refuse = ({ key, node }: Claim, why: string): void =>
    void problems.push(`block ${key} of node "${node.name}" ${why}: it gets no route`);
  const claims: Claim[] = [];
  for (const node of nodes) {
    const most = node.name === own ? node.blocks.length : MOST_OF_ONE;
    const counted = node.blocks.slice(0, most).map(subnetOf);
    const blocks = new Map(counted.map(block => [renderCidr(block), block]));
    if (node.blocks.length > most)
      problems.push(
        `node "${node.name}" has ${node.blocks.length} blocks: those after the first ${most} get no route`,
      );
    for (const [key, block] of blocks) {
      const claim = { node, block, key, isAccepted: false };
      const why = whyNever(block, limits);
      if (why === undefined) claims.push(claim);
      else refuse(claim, why);
    }
  }
  const overlaps = overlapsOf(claims);
  const order = compareNodes(own);
  // Of nodes that came at the same time, the wider block is the owner's, and the narrower one a part that another took of it.
  const rank = (a: Claim, b: Claim): number =>
    Number(b.node.name === own) - Number(a.node.name === own) ||
    compareText(a.node.since ?? '', b.node.since ?? '') ||
    a.block.prefix - b.block.prefix ||
    order(a.node, b.node);
  for (const claim of claims.toSorted(rank)) {
    const before = overlaps.get(claim)?.find(({ isAccepted }) => isAccepted);
    claim.isAccepted = before === undefined;
    if (before === undefined) continue;
    const why = whyFirst(before, claim, own);
    refuse(claim, `overlaps ${before.key} of node "${before.node.name}", which ${why}`);
  }
  refuseNodeAddresses(claims, nodes, refuse);
  const result = new Map<string, Cidr[]>();
  for (const { node, block } of claims.filter(({ isAccepted }) => isAccepted).sort(byBlock))
    put(result, node.name, block);
  return result;
}

function whyNever(block: Cidr, { within, never }: RouteLimits): string | undefined {
  const { family } = block.ip;
  if (block.prefix < WIDEST[family]) return `is wider than /${WIDEST[family]}`;
  const special = NEVER.find(one => cidrsOverlap(one, block));
  if (special) return `is in ${renderCidr(special)}, which no pod has`;
  const address = never.find(ip => cidrContains(block, ip));
  if (address) return `contains ${renderIp(address)}, the address of the API server`;
  const isIn = (one: Cidr) => one.prefix <= block.prefix && cidrContains(one, block.ip);
  return (within?.some(isIn) ?? true) ? undefined : 'is in none of "clusterCidrs"';
}

function whyFirst(first: Claim, second: Claim, own: string): string {
  if (first.node.name === own) return 'is this node';
  if ((first.node.since ?? '') !== (second.node.since ?? '')) return 'is older';
  return first.block.prefix === second.block.prefix ? 'comes first by name' : 'has more of it';
}

/** For each block those of other nodes that it contains, or that contain it: sorted, each follows what it is in. */
function overlapsOf(claims: readonly Claim[]): Map<Claim, Claim[]> {
  const overlaps = new Map<Claim, Claim[]>();
  let around: Claim[] = [];
  for (const claim of claims.toSorted(byBlock)) {
    around = around.filter(({ block }) => cidrContains(block, lastOf(claim.block)));
    for (const outer of around) {
      if (outer.node === claim.node) continue;
      put(overlaps, claim, outer);
      put(overlaps, outer, claim);
    }
    around.push(claim);
  }
  return overlaps;
}

/** The way to a block that contains the address of a node would lead through itself. */
function refuseNodeAddresses(
  claims: readonly Claim[],
  nodes: readonly ClusterNode[],
  refuse: (claim: Claim, why: string) => void,
): void {
  const byKey = new Map(claims.filter(({ isAccepted }) => isAccepted).map(claim => [claim.key, claim]));
  const prefixes = new Set(claims.map(({ block }) => `${block.ip.family} ${block.prefix}`));
  for (const { name, addresses } of nodes) {
    for (const ip of addresses) {
      for (const prefix of prefixes) {
        const [family, length] = prefix.split(' ').map(Number);
        const claim = family === ip.family && byKey.get(renderCidr(subnetOf({ ip, prefix: length ?? 0 })));
        if (!claim || claim.isAccepted === false) continue;
        claim.isAccepted = false;
        refuse(claim, `contains ${renderIp(ip)}, the address of node "${name}"`);
      }
    }
  }
}

/** Adds one to those of a key. */
export function put<K, V>(groups: Map<K, V[]>, key: K, value: V): void {
  const known = groups.get(key);
  if (known) known.push(value);
  else groups.set(key, [value]);
}

function byBlock({ block: a }: Claim, { block: b }: Claim): number {
  if (a.ip.family !== b.ip.family) return a.ip.family - b.ip.family;
  return a.ip.value < b.ip.value ? -1 : a.ip.value > b.ip.value ? 1 : a.prefix - b.prefix;
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export interface ClusterNode {
  readonly name: string;
  /** Addresses by which other nodes reach it, the preferred ones first; the first of each IP version is used. */
  readonly addresses: readonly Ip[];
  /** Ranges whose addresses are those of its pods. A single address is a range, too. */
  readonly blocks: readonly Cidr[];
  /** When it came to the cluster, in a form that sorts by time: what two nodes claim, the older one has. */
  readonly since?: string | undefined;
}

/** Who is told what a source knows. */
export interface NodeEvents {
  /**
   * All nodes that exist now, this one among them. Called at least once when the source knows them, after each change,
   * and after each problem, though they may be the same: it has gone.
   * @param more addresses that no block contains, and why blocks were left out
   */
  nodes(
    nodes: readonly ClusterNode[],
    more?: { readonly never: readonly Ip[]; readonly problems: readonly string[] },
  ): void;
  /** Why they are not known at present; those that were told last still count. */
  problem(text: string): void;
}

/** Where nodes are learned from: it tells from now on, until it is closed. */
export interface NodeSource {
  close(): void;
}
