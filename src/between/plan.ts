// Which routes, tunnels, neighbours and forwarding entries does this node need to reach the pods of every other, and what may an operator decide about them?
import { createHash } from 'node:crypto';
import { parseMac, renderMac } from '../net/interface.ts';
import {
  type Cidr,
  cidrContains,
  FAMILIES,
  IP_BITS,
  IPV6_MIN_MTU,
  type Ip,
  ipToBytes,
  linkLocalOf,
  networkOf,
  renderCidr,
  renderIp,
  sameIp,
} from '../net/ip.ts';
import { type ClusterNode, claimBlocks, compareNodes, type RouteLimits } from './claims.ts';
import { DEFAULT_PORT, DEFAULT_VNI, TUNNELS } from './names.ts';

/** How the other nodes are reached: `auto` is direct where they share a layer 2 with this node, through a tunnel where they do not. */
export const WAYS = ['auto', 'direct', 'vxlan'] as const;
export type Ways = (typeof WAYS)[number];

/** A device of this node that may lead to others. */
export interface HostLink {
  readonly index: number;
  readonly name: string;
  readonly mtu: number;
  readonly isUp: boolean;
  readonly addresses: readonly Cidr[];
}

export interface PlanChoices {
  /** Name of this node. */
  readonly own: string;
  readonly ways: Ways;
  readonly vni: number;
  readonly port: number;
  /** Where blocks may be; anywhere unless given. */
  readonly limits?: RouteLimits | undefined;
}

/** A tunnel to all nodes that are reached over one IP version. */
export interface TunnelPlan extends Pick<PlanChoices, 'vni' | 'port'> {
  readonly name: string;
  /** This node's address, from which its packets are sent. */
  readonly local: Ip;
  readonly mac: string;
  /** What a packet may have, so that it fits through the device below together with the headers of the tunnel. */
  readonly mtu: number;
  /** Sources of what this node itself sends to pods, so that answers come back through the tunnel. */
  readonly addresses: readonly Cidr[];
  readonly forwarding: readonly { readonly mac: string; readonly to: Ip }[];
  readonly neighbours: readonly { readonly ip: Ip; readonly mac: string }[];
}

/** A route to a block of another node. */
interface WayPlan {
  readonly dst: Cidr;
  readonly node: string;
  readonly gateway: Ip;
  /** The device: a tunnel by its name, or a device of the host by its index. */
  readonly through: { readonly tunnel: string } | { readonly index: number };
}

/** Everything that is wanted, and what could not be. */
export interface WaysPlan {
  readonly tunnels: readonly TunnelPlan[];
  readonly ways: readonly WayPlan[];
  /** Blocks of this node, and of the others. */
  readonly own: readonly Cidr[];
  readonly others: readonly Cidr[];
  /** Human-readable: what is wrong, and what follows. */
  readonly problems: readonly string[];
}

/** Outer IP header, UDP (8), VXLAN (8) and the inner Ethernet header (14); RFC 7348, section 5. */
const OVERHEAD = { 4: 20 + 30, 6: 40 + 30 } as const;

/**
 * Plans the ways from one node to all others. Pure: the same nodes and devices always give the same plan.
 * @returns undefined if this node is not among them: its own address and blocks are not known
 */
export function planWays(
  nodes: readonly ClusterNode[],
  links: readonly HostLink[],
  choices: PlanChoices,
): WaysPlan | undefined {
  const problems: string[] = [];
  const sorted = claimAddresses(nodes, choices.own, problems);
  const own = sorted.find(({ name }) => name === choices.own);
  if (own === undefined) return undefined;
  const blocks = claimBlocks(sorted, own.name, choices.limits ?? { never: [] }, problems);
  const ownBlocks = blocks.get(own.name) ?? [];
  const ends = endsOf(own, links, choices, problems);
  const ways: WayPlan[] = [];
  const peers: Record<4 | 6, TunnelPeer[]> = { 4: [], 6: [] };
  const others: Cidr[] = [];
  for (const node of sorted) {
    if (node === own) continue;
    const tunnel = choices.ways === 'direct' ? undefined : tunnelTo(node, ends);
    for (const family of FAMILIES) {
      const some = (blocks.get(node.name) ?? []).filter(({ ip }) => ip.family === family);
      const [first] = some;
      if (first === undefined) continue;
      others.push(...some);
      const lead = (gateway: Ip, through: WayPlan['through']) =>
        void ways.push(...some.map(dst => ({ dst, node: node.name, gateway, through })));
      const direct = choices.ways === 'vxlan' ? undefined : neighbourOf(node, family, links);
      if (direct) lead(direct.ip, { index: direct.link.index });
      else if (tunnel) {
        const gateway = family === 4 ? networkOf(first) : linkLocalOf(parseMac(tunnel.mac));
        peers[tunnel.to.family].push({ ...tunnel, gateway });
        lead(gateway, { tunnel: TUNNELS[tunnel.to.family] });
      } else {
        const what = some.map(renderCidr).join(', ');
        problems.push(`no way to ${what} of node "${node.name}": ${whyNot(node, choices, ends)}`);
      }
    }
  }
  const tunnels = FAMILIES.flatMap(family => {
    const [end] = ends.filter(({ local }) => local.family === family);
    if (end === undefined || peers[family].length === 0) return [];
    return planTunnel(end, peers[family], ownBlocks, choices, problems);
  });
  return { tunnels, ways, own: ownBlocks, others, problems };
}

interface TunnelEnd {
  readonly mac: string;
  readonly to: Ip;
}

interface TunnelPeer extends TunnelEnd {
  readonly gateway: Ip;
}

/** This node's end of tunnels over one IP version. */
interface OwnEnd {
  readonly local: Ip;
  readonly link: HostLink;
}

/** The nodes by name, each with the addresses that no node before it has. */
function claimAddresses(nodes: readonly ClusterNode[], own: string, problems: string[]): ClusterNode[] {
  const claims = new Map<string, string>();
  const byName = new Map<string, ClusterNode>();
  for (const node of nodes.toSorted(compareNodes(own))) {
    const { name } = node;
    const before = byName.get(name);
    if (before === undefined) byName.set(name, node);
    else
      problems.push(
        `nodes with addresses ${addressesOf(before)} and ${addressesOf(node)} are both named "${name}": the first one alone gets routes`,
      );
  }
  const claimed = [...byName.values()].map(node => {
    const addresses = node.addresses.filter(ip => {
      const before = claims.get(renderIp(ip));
      if (before === undefined) claims.set(renderIp(ip), node.name);
      else if (before !== node.name)
        problems.push(
          `address ${renderIp(ip)} belongs to nodes "${before}" and "${node.name}": the first one has it`,
        );
      return before === undefined;
    });
    return { ...node, addresses };
  });
  return claimed.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** The ends that this node can have: an address of it is on one of its devices. */
function endsOf(
  own: ClusterNode,
  links: readonly HostLink[],
  { ways }: PlanChoices,
  problems: string[],
): OwnEnd[] {
  if (ways === 'direct') return [];
  return FAMILIES.flatMap(family => {
    const local = addressOf(own, family);
    if (local === undefined) return [];
    const link = links.find(({ addresses }) => addresses.some(({ ip }) => sameIp(ip, local)));
    if (link) return { local, link };
    problems.push(
      `address ${renderIp(local)} of this node is on none of its devices: no tunnel starts there`,
    );
    return [];
  });
}

function tunnelTo(node: ClusterNode, ends: readonly OwnEnd[]): TunnelEnd | undefined {
  for (const { local } of ends) {
    const to = addressOf(node, local.family);
    if (to) return { to, mac: macOf(to) };
  }
  return undefined;
}

/** The device whose subnet has the node's address: the smallest subnet, as the kernel would choose. */
function neighbourOf(
  node: ClusterNode,
  family: 4 | 6,
  links: readonly HostLink[],
): { readonly ip: Ip; readonly link: HostLink } | undefined {
  const ip = addressOf(node, family);
  if (ip === undefined) return undefined;
  const candidates = links.flatMap(link =>
    link.addresses
      .filter(cidr => cidr.prefix < IP_BITS[family] && cidrContains(cidr, ip) && !sameIp(cidr.ip, ip))
      .map(({ prefix }) => ({ ip, link, prefix })),
  );
  const [best] = candidates.sort((a, b) => b.prefix - a.prefix || a.link.index - b.link.index);
  return best?.link.isUp ? best : undefined;
}

function whyNot(node: ClusterNode, { ways }: PlanChoices, ends: readonly OwnEnd[]): string {
  const [first] = node.addresses;
  if (first === undefined) return 'it has no address';
  const where = addressesOf(node);
  if (ways === 'direct') return `${where} is on no subnet of this node, and tunnels are not allowed`;
  if (ends.length === 0) return 'this node has no address for a tunnel';
  return `${where} is not of the IP version of this node's addresses`;
}

function planTunnel(
  { local, link }: OwnEnd,
  peers: readonly TunnelPeer[],
  own: readonly Cidr[],
  { vni, port }: PlanChoices,
  problems: string[],
): TunnelPlan {
  const mtu = link.mtu - OVERHEAD[local.family];
  const addresses = FAMILIES.flatMap(family => {
    const first = own.find(({ ip }) => ip.family === family);
    return first ? { ip: networkOf(first), prefix: IP_BITS[family] } : [];
  });
  if (mtu < IPV6_MIN_MTU && peers.some(({ gateway }) => gateway.family === 6))
    problems.push(
      `"${link.name}" has MTU ${link.mtu}, which leaves ${mtu} bytes in the tunnel: IPv6 needs ${IPV6_MIN_MTU}`,
    );
  const forwarding = new Map<string, { readonly mac: string; readonly to: Ip }>();
  for (const { mac, to } of peers) {
    const before = forwarding.get(mac);
    if (before && !sameIp(before.to, to))
      problems.push(
        `nodes ${renderIp(before.to)} and ${renderIp(to)} have the same end of a tunnel, ${mac}: change one address`,
      );
    else forwarding.set(mac, { mac, to });
  }
  return {
    name: TUNNELS[local.family],
    ...{ vni, port, local, mtu, addresses },
    mac: macOf(local),
    forwarding: [...forwarding.values()],
    neighbours: peers.map(({ gateway, mac }) => ({ ip: gateway, mac })),
  };
}

function addressesOf({ addresses }: ClusterNode): string {
  return addresses.map(renderIp).join(' and ');
}

function addressOf({ addresses }: ClusterNode, family: 4 | 6): Ip | undefined {
  return addresses.find(ip => ip.family === family);
}

/** Locally administered and unicast; the second byte tells ours from those that other programs draw at random. */
const V4_PREFIX = [0x0a, 0xc7];
const V6_PREFIX = [0x0e];

/**
 * The hardware address of a node's end, which follows from its address: IPv4 is contained in it, of IPv6 a hash. So a node that boots
 * again, or whose tunnel is made again, has the same.
 */
function macOf(address: Ip): string {
  const bytes = ipToBytes(address);
  if (address.family === 4) return renderMac(Uint8Array.of(...V4_PREFIX, ...bytes));
  const hash = createHash('sha256').update(bytes).digest();
  return renderMac(Uint8Array.of(...V6_PREFIX, ...hash.subarray(0, 5)));
}

/** The value of `nodes` that means the Node objects of a cluster, with the ranges that the cluster assigned to them. */
export const KUBERNETES = 'kubernetes';
/** The value that means Node objects, with the blocks that their nodes claimed by the plugin `cluster`. */
export const BLOCKS = 'blocks';

export interface BetweenSettings extends Pick<PlanChoices, 'ways' | 'vni' | 'port'> {
  /** Where nodes are learned from: a file or directory, {@link KUBERNETES} or {@link BLOCKS}; undefined: there are no routes to other nodes. */
  readonly nodes: string | undefined;
  /** For {@link KUBERNETES} and {@link BLOCKS}; undefined: the account of the pod that the daemon runs in. */
  readonly kubeconfig: string | undefined;
  /** Subnets that hold the blocks of all nodes; undefined: any. */
  readonly clusterCidrs: readonly string[] | undefined;
}

export const BETWEEN_SETTINGS: BetweenSettings = {
  nodes: undefined,
  kubeconfig: undefined,
  clusterCidrs: undefined,
  ways: 'auto',
  vni: DEFAULT_VNI,
  port: DEFAULT_PORT,
};

/** As `GET /v1/state` shows it. */
export interface BetweenState {
  /** Name of this node. */
  readonly own: string;
  /** Other nodes that are known, and routes to their blocks that are wanted. */
  readonly nodes: number;
  readonly routes: number;
  /** MTU of each tunnel. */
  readonly tunnels: Readonly<Record<string, number>>;
  /** What could not be planned or made, human-readable. */
  readonly problems: readonly string[];
  /** Times that the kernel's state was made as planned again, after the nodes changed and after others changed it. */
  readonly changes: { readonly planned: number; readonly repaired: number };
}
