// Which fixed objects does port mapping need in the kernel, whatever is mapped?
import { type Cidr, netmaskOf, parseCidr } from '../../src/net/cidr.ts';
import { ipToBytes } from '../../src/net/ip.ts';
import {
  addChain,
  type BaseChain,
  NF_IP_PRI_NAT_DST,
  NF_IP_PRI_NAT_SRC,
  NF_IP_PRI_RAW,
} from '../../src/netlink/nft/chain.ts';
import { jump, NF_DROP } from '../../src/netlink/nft/data.ts';
import { maskRegister } from '../../src/netlink/nft/expr/bitwise.ts';
import { isNotEqual } from '../../src/netlink/nft/expr/cmp.ts';
import { decide } from '../../src/netlink/nft/expr/immediate.ts';
import { followVerdict, isInSet, lookUp } from '../../src/netlink/nft/expr/lookup.ts';
import { loadMeta } from '../../src/netlink/nft/expr/meta.ts';
import { dnat, masquerade } from '../../src/netlink/nft/expr/nat.ts';
import type { Expression } from '../../src/netlink/nft/expr.ts';
import type { Table } from '../../src/netlink/nft/message.ts';
import { addRule, flushChain } from '../../src/netlink/nft/rule.ts';
import { addSet, type NftSet } from '../../src/netlink/nft/set.ts';
import {
  loadAddress,
  loadDestinationPort,
  loadProtocol,
  matchAddress,
  matchFamily,
  matchLocalDestination,
  matchTranslatedDestination,
  REG,
} from '../../src/netlink/nft/statements.ts';
import { addTable } from '../../src/netlink/nft/table.ts';
import type { Request } from '../../src/netlink/socket.ts';

/** Everything below lives in one table of our own. */
export const TABLE: Table = { family: 'inet', name: 'catena_portmap' };

/** The sets and maps of one IP version. */
export interface FamilySets {
  /** Protocol and host port, on every address of the host, to address and port of the pod. */
  readonly wildcard: NftSet;
  /** The same for ports taken on one address of the host. */
  readonly specific: NftSet;
  /** Address of the host to the number of ports taken on it alone: where a wildcard claim has to look. */
  readonly hostips: NftSet;
  /** Attachment and number to one host port of it (0.0.0.0 or :: for all addresses) with subnet and address of the pod. */
  readonly claims: NftSet;
  /** Address of a pod to the attachment it belongs to. */
  readonly pods: NftSet;
  /** Address of a pod to the chain that decides which sources are masqueraded. */
  readonly snat: NftSet;
  /** Subnet and address of pods: sources that need masquerading to find the way back. */
  readonly hairpin: NftSet;
}

/** The sets and maps, by IP version. */
export const SETS: Readonly<Record<4 | 6, FamilySets>> = { 4: familySets(4), 6: familySets(6) };

/** Every set and map of the table. */
export const ALL_SETS: readonly NftSet[] = [...Object.values(SETS[4]), ...Object.values(SETS[6])];

/** Chain that masquerades every forwarded connection. */
export const SNAT_ALL = 'snat_all';

/** A chain of the skeleton with its rules in order. */
export interface ChainPlan {
  readonly name: string;
  readonly base?: BaseChain;
  readonly rules: readonly Expression[][];
}

/** Name of the chain that masquerades what comes from the pod's own subnet; one per prefix length. */
export function snatChain({ ip, prefix }: Cidr): string {
  return `snat${ip.family}_${prefix}`;
}

/**
 * Everything but the chains by prefix length, then those for the pods given. Chains that are jumped to come first: a rule
 * must find its target.
 */
export function planChains(pods: readonly Cidr[]): ChainPlan[] {
  const snat = new Map(pods.map(pod => [snatChain(pod), { name: snatChain(pod), rules: snatRules(pod) }]));
  return [
    ...snat.values(),
    { name: SNAT_ALL, rules: [[masquerade()]] },
    { name: 'hostports', rules: [...forwardRules(4), ...forwardRules(6)] },
    {
      name: 'guard',
      base: { type: 'filter', hook: 'prerouting', priority: NF_IP_PRI_RAW },
      rules: [guardRule()],
    },
    ...(['prerouting', 'output'] as const).map(hook => ({
      name: hook,
      base: { type: 'nat' as const, hook, priority: NF_IP_PRI_NAT_DST },
      rules: [[...matchLocalDestination(), decide(jump('hostports'))]],
    })),
    {
      name: 'postrouting',
      base: { type: 'nat', hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC },
      rules: [snatRule(4), snatRule(6)],
    },
  ];
}

/** The changes that bring the skeleton about, from whatever there is of it; elements stay. */
export function skeletonChanges(pods: readonly Cidr[]): Request[] {
  const chains = planChains(pods);
  return [
    addTable(TABLE, 'catena: ports of the host mapped to pods'),
    ...ALL_SETS.map(addSet),
    ...chains.map(({ name, base }) => addChain(TABLE, name, base)),
    ...chains.map(({ name }) => flushChain(TABLE, name)),
    ...chains.flatMap(({ name, rules }) => rules.map(rule => addRule(TABLE, name, rule))),
  ];
}

function familySets(family: 4 | 6): FamilySets {
  const address = family === 4 ? 'ipv4_addr' : 'ipv6_addr';
  const named = (name: string) => ({ table: TABLE, name: `${name}${family}` });
  const target = [address, 'inet_service'] as const;
  return {
    wildcard: { ...named('wildcard'), key: ['inet_proto', 'inet_service'], data: target },
    specific: { ...named('specific'), key: [address, 'inet_proto', 'inet_service'], data: target },
    // nft has no type for a plain number; marks come closest.
    hostips: { ...named('hostips'), key: [address], data: ['mark'] },
    claims: {
      ...named('claims'),
      // The second part numbers the claims of an attachment.
      key: ['ifname', 'inet_service'],
      data: [address, 'inet_proto', 'inet_service', address, address],
    },
    pods: { ...named('pods'), key: [address], data: ['ifname'] },
    snat: { ...named('snat'), key: [address], data: 'verdict' },
    hairpin: { ...named('hairpin'), key: [address, address] },
  };
}

/**
 * Same as: `dnat ip to ip daddr . meta l4proto . th dport map @specific4` and
 * `dnat ip to meta l4proto . th dport map @wildcard4`
 */
function forwardRules(family: 4 | 6): Expression[][] {
  const { specific, wildcard } = SETS[family];
  const afterAddress = REG.quarter(quartersOf(family));
  const forward = dnat(family === 4 ? 'ip' : 'ip6', REG.first, afterAddress);
  return [
    [
      ...matchFamily(family),
      loadAddress(family, 'daddr', REG.first),
      loadProtocol(afterAddress),
      loadDestinationPort(REG.quarter(quartersOf(family) + 1)),
      lookUp(specific, REG.first, REG.first),
      forward,
    ],
    [
      ...matchFamily(family),
      loadProtocol(REG.first),
      loadDestinationPort(REG.quarter(1)),
      lookUp(wildcard, REG.first, REG.first),
      forward,
    ],
  ];
}

/** Same as: `ct status & dnat == dnat ip daddr vmap @snat4` */
function snatRule(family: 4 | 6): Expression[] {
  return [
    ...matchTranslatedDestination(),
    ...matchFamily(family),
    loadAddress(family, 'daddr', REG.first),
    followVerdict(SETS[family].snat, REG.first),
  ];
}

/** Same as: `ip saddr 127.0.0.0/8 masquerade` and `ip saddr & <netmask> . ip daddr @hairpin4 masquerade` */
function snatRules(pod: Cidr): Expression[][] {
  const { family } = pod.ip;
  const loopback = [...matchFamily(4), ...matchAddress('saddr', parseCidr('127.0.0.0/8')), masquerade()];
  const hairpin = [
    ...matchFamily(family),
    loadAddress(family, 'saddr', REG.first),
    maskRegister(REG.first, ipToBytes(netmaskOf(pod))),
    loadAddress(family, 'daddr', REG.quarter(quartersOf(family))),
    isInSet(SETS[family].hairpin, REG.first),
    masquerade(),
  ];
  return family === 4 ? [loopback, hairpin] : [hairpin];
}

/**
 * `route_localnet` opens the host's loopback addresses to whoever is behind the interface: this keeps them closed.
 * Same as: `meta iifname != "lo" ip daddr 127.0.0.0/8 drop`
 */
function guardRule(): Expression[] {
  return [
    loadMeta(REG.first, 'iifname'),
    isNotEqual(REG.first, new TextEncoder().encode('lo\0')),
    ...matchFamily(4),
    ...matchAddress('daddr', parseCidr('127.0.0.0/8')),
    decide({ code: NF_DROP }),
  ];
}

/** Registers' quarters that an address takes. */
function quartersOf(family: 4 | 6): number {
  return family === 4 ? 1 : 4;
}
