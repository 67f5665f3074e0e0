// Which fixed objects does the firewall need in the kernel, independently of the pods?
import { jump, NF_ACCEPT, NF_DROP } from '../../src/netlink/nft/data.ts';
import { isEqual } from '../../src/netlink/nft/expr/cmp.ts';
import { decide } from '../../src/netlink/nft/expr/immediate.ts';
import { followVerdict, isInSet } from '../../src/netlink/nft/expr/lookup.ts';
import { loadMeta } from '../../src/netlink/nft/expr/meta.ts';
import type { Expression } from '../../src/netlink/nft/expr.ts';
import type { Table } from '../../src/netlink/nft/message.ts';
import type { NftSet } from '../../src/netlink/nft/set.ts';
import type { Skeleton } from '../../src/netlink/nft/skeleton.ts';
import { loadAddress, matchFamily, REG } from '../../src/netlink/nft/statements.ts';

/** The table of our own that holds everything except the rules for traffic within a bridge. */
export const TABLE: Table = { family: 'inet', name: 'catena_firewall' };

/** Packets between two ports of a bridge only traverse this family, unless br_netfilter passes them to the others. */
const BRIDGE_TABLE: Table = { family: 'bridge', name: 'catena_firewall' };

/** The sets and maps of one IP version. */
export interface FamilySets {
  /** Addresses of pods to and from which packets are forwarded. */
  readonly pods: NftSet;
  /** Address of a pod that is not open, to the chain that decides. */
  readonly ingress: NftSet;
  /** Address of such a pod and the host interface that leads to it. */
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

/** Host interfaces that lead to pods that are not open. */
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
export const INGRESS_CHAIN = { 'same-bridge': 'same_bridge', isolated: 'isolated' } as const;

/** linux/netfilter_ipv4.h, NF_IP_PRI_FILTER */
const NF_IP_PRI_FILTER = 0;
/** linux/netfilter_bridge.h, NF_BR_PRI_FILTER_BRIDGED */
const NF_BR_PRI_FILTER_BRIDGED = -200;
/** linux/if_ether.h, in network byte order */
const ETHERTYPE = { 4: Uint8Array.of(0x08, 0x00), 6: Uint8Array.of(0x86, 0xdd) } as const;

const accept = decide({ code: NF_ACCEPT });
const drop = decide({ code: NF_DROP });

/** The table for routed packets. `admin` belongs to the operator: it is evaluated first, and its rules are kept. */
export const SKELETON: Skeleton = {
  table: TABLE,
  comment: 'catena: packets forwarded to and from pods',
  sets: [...OWNED_SETS.filter(({ table }) => table === TABLE), CLOSED, TALLY],
  chains: [
    { name: 'admin' },
    { name: INGRESS_CHAIN['same-bridge'], rules: [...homeRules(accept), closedRule(), [accept]] },
    { name: INGRESS_CHAIN.isolated, rules: [...homeRules(drop), closedRule(), [accept]] },
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: NF_IP_PRI_FILTER },
      rules: [
        [decide(jump('admin'))],
        ingressRule(4),
        ingressRule(6),
        ...([4, 6] as const).flatMap(family => [podRule(family, 'saddr'), podRule(family, 'daddr')]),
      ],
    },
  ],
};

/** The table for packets within a bridge; created for the first isolated pod. */
export const BRIDGE_SKELETON: Skeleton = {
  table: BRIDGE_TABLE,
  comment: 'catena: packets to isolated pods on the same bridge',
  version: 2,
  earlier: { rules: { forward: 2 }, without: [PORTS.name, BEHIND.name] },
  sets: [SETS[4].isolated, SETS[6].isolated, PORTS, BEHIND],
  chains: [
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: NF_BR_PRI_FILTER_BRIDGED },
      rules: [portRule(), isolatedRule(4), isolatedRule(6)],
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

/** Same as: `ip daddr vmap @ingress4` */
function ingressRule(family: 4 | 6): Expression[] {
  return [
    ...matchFamily(family),
    loadAddress(family, 'daddr', REG.first),
    followVerdict(SETS[family].ingress, REG.first),
  ];
}

/** Same as: `ip saddr|daddr @pods4 accept` */
function podRule(family: 4 | 6, which: 'saddr' | 'daddr'): Expression[] {
  return [
    ...matchFamily(family),
    loadAddress(family, which, REG.first),
    isInSet(SETS[family].pods, REG.first),
    accept,
  ];
}

/** Same as: `ip daddr . iifname @home4 <verdict>`, and for IPv6 */
function homeRules(verdict: Expression): Expression[][] {
  return ([4, 6] as const).map(family => [
    ...matchFamily(family),
    loadAddress(family, 'daddr', REG.first),
    loadMeta(REG.quarter(family === 4 ? 1 : 4), 'iifname'),
    isInSet(SETS[family].home, REG.first),
    verdict,
  ]);
}

/** Same as: `iifname @closed drop` */
function closedRule(): Expression[] {
  return [loadMeta(REG.first, 'iifname'), isInSet(CLOSED, REG.first), drop];
}

/**
 * A pod has addresses that no result names, above all link-local ones, and receives multicast, so everything that would leave
 * through its port is dropped. Packets from the host itself, such as the gateway's replies, do not traverse this hook.
 * Same as: `oifname @ports drop`
 */
function portRule(): Expression[] {
  return [loadMeta(REG.first, 'oifname'), isInSet(PORTS, REG.first), drop];
}

/** Same as: `ip daddr @isolated4 drop`, in a bridge, where the ethertype tells the IP version */
function isolatedRule(family: 4 | 6): Expression[] {
  return [
    loadMeta(REG.first, 'protocol'),
    isEqual(REG.first, ETHERTYPE[family]),
    loadAddress(family, 'daddr', REG.first),
    isInSet(SETS[family].isolated, REG.first),
    drop,
  ];
}
