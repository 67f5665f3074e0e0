// Which traffic is the firewall to accept, before the current state is considered?

import type { FilterOwner } from '../../src/attach/owner.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { findCidr, type Ip, sameIp } from '../../src/net/ip.ts';
import type { Element, ElementPlace, Entry } from '../../src/netlink/nft/element.ts';
import { goto } from '../../src/netlink/nft/expr.ts';
import type { Table } from '../../src/netlink/nft/message.ts';
import { placeOf, type Skeleton } from '../../src/netlink/nft/skeleton.ts';
import { type FieldValue, NF_IP_PRI_FILTER, type NftSet } from '../../src/netlink/nft/table.ts';
import type { IngressPolicy, Other } from './config.ts';

/** The table of our own that holds everything except the rules for traffic within a bridge. */
export const TABLE: Table = { family: 'inet', name: 'catena_firewall' };

/** Packets between two ports of a bridge only traverse this family, unless br_netfilter passes them to the others. */
const BRIDGE_TABLE: Table = { family: 'bridge', name: 'catena_firewall' };

/** The sets and maps of one IP version. */
interface FamilySets {
  /** Addresses of pods to and from which packets are forwarded. */
  readonly pods: NftSet;
  /** Address of a pod that is not open, to the chain that decides. */
  readonly ingress: NftSet;
  /** Address of such a pod and the device by which the host routes to it. */
  readonly home: NftSet;
  /** Attachment and number to one of its addresses, and to the interface if the pod is not open. */
  readonly claims: NftSet;
  /** Addresses that also have rules in iptables. */
  readonly iptables: NftSet;
  /** Addresses that are also in a zone of firewalld. */
  readonly firewalld: NftSet;
  /** Address of an isolated pod, within bridges. */
  readonly isolated: NftSet;
}

/** The sets and maps, by IP version. */
export const SETS: Readonly<Record<4 | 6, FamilySets>> = { 4: familySets(4), 6: familySets(6) };

/** Devices by which the host routes to pods that are not open. */
export const CLOSED: NftSet = { table: TABLE, name: 'closed', key: ['ifname'] };

/** Such an interface to the number of addresses that need it in {@link CLOSED}; nft has no type for a plain number. */
export const TALLY: NftSet = { table: TABLE, name: 'tally', key: ['ifname'], data: ['mark'] };

/** Bridge ports that lead to an isolated pod: everything sent to it, to whichever address, leaves through that port. */
export const PORTS: NftSet = { table: BRIDGE_TABLE, name: 'ports', key: ['ifname'] };

/** Attachment to its element of {@link PORTS}. */
export const BEHIND: NftSet = { table: BRIDGE_TABLE, name: 'behind', key: ['ifname'], data: ['ifname'] };

/** Sets whose elements belong to one attachment each. */
export const OWNED_SETS: readonly NftSet[] = [
  ...Object.values(SETS[4]),
  ...Object.values(SETS[6]),
  PORTS,
  BEHIND,
];

/** The chain to which an element of `ingress` jumps, by policy. */
const INGRESS_CHAIN = { 'same-bridge': 'same_bridge', isolated: 'isolated' } as const;

/** linux/netfilter_bridge.h, NF_BR_PRI_FILTER_BRIDGED */
const NF_BR_PRI_FILTER_BRIDGED = -200;
/** The table for routed packets. `admin` belongs to the operator: it is evaluated first, and its rules are kept. */
export const SKELETON: Skeleton = {
  table: TABLE,
  comment: 'catena: packets forwarded to and from pods',
  version: 2,
  sets: [...OWNED_SETS.filter(({ table }) => table === TABLE), CLOSED, TALLY],
  chains: [
    { name: 'admin' },
    { name: INGRESS_CHAIN['same-bridge'], rules: ingressRules('accept') },
    { name: INGRESS_CHAIN.isolated, rules: ingressRules('drop') },
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: NF_IP_PRI_FILTER },
      rules: [
        'jump admin',
        'ip daddr vmap @ingress4',
        'ip6 daddr vmap @ingress6',
        'ip saddr @pods4 accept',
        'ip daddr @pods4 accept',
        'ip6 saddr @pods6 accept',
        'ip6 daddr @pods6 accept',
      ],
    },
  ],
};

/** The table for packets within a bridge; created for the first isolated pod. */
export const BRIDGE_SKELETON: Skeleton = {
  table: BRIDGE_TABLE,
  comment: 'catena: packets to isolated pods on the same bridge',
  version: 2,
  sets: [SETS[4].isolated, SETS[6].isolated, PORTS, BEHIND],
  chains: [
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: NF_BR_PRI_FILTER_BRIDGED },
      // A pod has addresses that no result names, above all link-local ones, and receives multicast, so everything that would
      // leave through its port is dropped. Packets from the host itself, such as the gateway's replies, do not traverse this hook.
      rules: ['oifname @ports drop', 'ip daddr @isolated4 drop', 'ip6 daddr @isolated6 drop'],
    },
  ],
};

function familySets(family: 4 | 6): FamilySets {
  const address = family === 4 ? 'ipv4_addr' : 'ipv6_addr';
  const named = (name: string) => ({ table: TABLE, name: `${name}${family}` });
  return {
    pods: { ...named('pods'), key: [address] },
    ingress: { ...named('ingress'), key: [address], data: 'verdict' },
    home: { ...named('home'), key: [address, 'ifname'] },
    // The second part numbers the claims of an attachment.
    claims: { ...named('claims'), key: ['ifname', 'inet_service'], data: [address, 'ifname'] },
    iptables: { ...named('iptables'), key: [address] },
    firewalld: { ...named('firewalld'), key: [address] },
    isolated: { table: BRIDGE_TABLE, name: `isolated${family}`, key: [address] },
  };
}

/** What peers behind the same interface may do, then those behind the interfaces of other such pods, then all others. */
function ingressRules(home: 'accept' | 'drop'): string[] {
  return [
    `ip daddr . iifname @home4 ${home}`,
    `ip6 daddr . iifname @home6 ${home}`,
    'iifname @closed drop',
    'accept',
  ];
}

export interface AccessPlan {
  /** Packet filters of the host that are informed as well. */
  readonly others: readonly Other[];
  /**
   * Whether the configuration names them. If so, they also get the reference's rules for policies, which apply to whole bridges.
   * Otherwise they only accept packets, and nf_tables enforces the policy of each pod.
   */
  readonly isNamed: boolean;
  /** They get the reference's rules alone. */
  readonly asReference?: boolean;
  readonly pods: readonly Ip[];
  /** How the host reaches the pod, and which peers may connect to it; absent when all may. */
  readonly ingress?: Ingress;
}

/** What a policy other than `open` needs. */
export interface Ingress {
  /** The first host interface of the result: a bridge, or the pod's own veth. */
  readonly bridge: string;
  /** The device by which the host routes to the pod, which its routed packets come from: the bridge, or its port of a VLAN. */
  readonly home: string;
  readonly policy: Exclude<IngressPolicy, 'open'>;
  /** Port of the bridge that leads to the pod, for `isolated`; absent if there is no bridge. */
  readonly port?: string;
}

/**
 * All addresses of the result and, for a policy, the first host interface in it: a bridge, or the pod's own veth.
 * @throws CniError 7 for a policy without such an interface to apply it to
 */
export function planAccess(result: Result, policy: IngressPolicy): Pick<AccessPlan, 'pods' | 'ingress'> {
  const pods: Ip[] = [];
  for (const { address } of result.ips ?? []) {
    const ip = findCidr(address)?.ip;
    if (ip && !pods.some(one => sameIp(one, ip))) pods.push(ip);
  }
  if (policy === 'open') return { pods };
  const bridge = result.interfaces?.find(({ sandbox }) => !sandbox)?.name;
  if (bridge === undefined) {
    throw invalidConfig(
      `Cannot use "ingressPolicy": "${policy}": no interface in "prevResult" is on the host; place this plugin ` +
        'after one that creates a bridge or a veth pair',
    );
  }
  return { pods, ingress: { bridge, home: bridge, policy } };
}

export interface Claim {
  readonly number: number;
  readonly pod: Ip;
  /** The device by which the host reached it; absent for a pod that is open to all peers. */
  readonly home?: string;
}

/** Everything that ADD puts into the kernel, except the counts of interfaces. */
export function planElements({ others, pods, ingress }: AccessPlan, owner: FilterOwner): Entry[] {
  const ofPods = pods.flatMap(pod => {
    const number = pods.filter(({ family }) => family === pod.family).indexOf(pod);
    const claim = { number, pod, ...defined({ home: ingress?.home }) };
    return elementsOf(claim, owner, others, ingress?.policy);
  });
  return [...ofPods, ...(ingress?.port === undefined ? [] : portEntries(ingress.port, owner))];
}

/** Where elements of a claim may be, whatever its policy was and whichever packet filters were told. */
export function placesOf(claim: Claim, owner: FilterOwner): ElementPlace[] {
  return elementsOf(claim, owner, ['iptables', 'firewalld'], 'isolated').map(placeOf);
}

function elementsOf(
  { number, pod, home }: Claim,
  owner: FilterOwner,
  others: readonly Other[],
  policy: Ingress['policy'] | undefined,
): Entry[] {
  const sets = SETS[pod.family];
  const entry = (set: NftSet, key: readonly FieldValue[], data?: Element['data']): Entry => ({
    set,
    element: { key, ...defined({ data }), comment: owner.note },
  });
  const common = [
    entry(sets.pods, [pod]),
    entry(sets.claims, [owner.handle, number], [pod, home ?? '']),
    ...others.map(other => entry(sets[other], [pod])),
  ];
  if (home === undefined || policy === undefined) return common;
  return [
    ...common,
    entry(sets.home, [pod, home]),
    entry(sets.ingress, [pod], goto(INGRESS_CHAIN[policy])),
    ...(policy === 'isolated' ? [entry(sets.isolated, [pod])] : []),
  ];
}

/** The elements that record the bridge port of an isolated pod. */
function portEntries(port: string, { handle, note: comment }: FilterOwner): Entry[] {
  return [
    { set: PORTS, element: { key: [port], comment } },
    { set: BEHIND, element: { key: [handle], data: [port], comment } },
  ];
}

export function decodeClaim({ key, data }: Element): Claim {
  const [pod, home] = data as readonly [Ip, string];
  return { number: Number(key[1]), pod, ...(home === '' ? {} : { home }) };
}
