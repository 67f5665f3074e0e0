// Which fixed objects does port mapping need in the kernel, independently of the mappings?
import { type Cidr, netmaskOf, parseCidr } from '../../src/net/cidr.ts';
import { ipToBytes, parseIp } from '../../src/net/ip.ts';
import { NF_IP_PRI_NAT_DST, NF_IP_PRI_NAT_SRC, NF_IP_PRI_RAW } from '../../src/netlink/nft/chain.ts';
import { jump, NF_DROP, NFT_RETURN } from '../../src/netlink/nft/data.ts';
import { maskRegister } from '../../src/netlink/nft/expr/bitwise.ts';
import { isEqual, isNotEqual } from '../../src/netlink/nft/expr/cmp.ts';
import { decide } from '../../src/netlink/nft/expr/immediate.ts';
import { followVerdict, isInSet, lookUp } from '../../src/netlink/nft/expr/lookup.ts';
import { loadMeta } from '../../src/netlink/nft/expr/meta.ts';
import { dnat, masquerade } from '../../src/netlink/nft/expr/nat.ts';
import type { Expression } from '../../src/netlink/nft/expr.ts';
import type { ChainPlan, Skeleton } from '../../src/netlink/nft/skeleton.ts';
import {
  loadAddress,
  loadDestinationPort,
  loadProtocol,
  matchAddress,
  matchFamily,
  matchLabel,
  matchLocalDestination,
  REG,
  setLabel,
} from '../../src/netlink/nft/statements.ts';
import type { Conditions } from './conditions.ts';
import { conditionalSets, FIXED_SETS, type ForwardSets, SETS, TABLE } from './sets.ts';

/**
 * Bit of the connection label that marks connections translated by this table. Packet marks have few bits, which kube-proxy,
 * Calico and others use; labels have 128 bits and hardly any users.
 */
const FORWARDED_LABEL = 107;

/** Chain that masquerades every forwarded connection. */
export const SNAT_ALL = 'snat_all';

/** The part of the skeleton that depends on the attachment: chains are created when first needed, and kept. */
export interface Needs {
  /** Addresses of pods with the prefix length of their subnets. */
  readonly pods: readonly Cidr[];
  readonly conditions: readonly Conditions[];
}

/** Name of the chain that masquerades what comes from the pod's own subnet; one per prefix length. */
export function snatChain({ ip, prefix }: Cidr): string {
  return `snat${ip.family}_${prefix}`;
}

/** Name of the chain that evaluates all conditions in use. Its rules are not part of the skeleton. */
export function askingChain(family: 4 | 6): string {
  return `conditions${family}`;
}

/** Name of the chain that forwards when the conditions hold. */
export function whenChain({ family, handle }: Pick<Conditions, 'family' | 'handle'>): string {
  return `when${family}_${handle}`;
}

/** All shared objects, and those that the attachment needs in addition. */
export function planSkeleton({ pods, conditions }: Needs): Skeleton {
  const snat = new Map(pods.map(pod => [snatChain(pod), { name: snatChain(pod), rules: snatRules(pod) }]));
  const forwarding = conditions.flatMap(({ family, handle }) =>
    Object.values(conditionalSets(family, handle)),
  );
  return {
    table: TABLE,
    comment: 'catena: ports of the host mapped to pods',
    version: 2,
    earlier: { rules: { output: 1 }, without: [] },
    sets: [...FIXED_SETS, ...forwarding],
    chains: [
      ...snat.values(),
      { name: SNAT_ALL, rules: [[masquerade()]] },
      ...conditions.map(whenPlan),
      ...([4, 6] as const).map(family => ({ name: askingChain(family) })),
      {
        name: 'hostports',
        rules: ([4, 6] as const).flatMap(family => [
          conditionalRule(family),
          ...forwardRules(family, SETS[family]),
        ]),
      },
      {
        name: 'guard',
        base: { type: 'filter', hook: 'prerouting', priority: NF_IP_PRI_RAW },
        rules: [guardRule()],
      },
      ...(['prerouting', 'output'] as const).map(hook => ({
        name: hook,
        base: { type: 'nat' as const, hook, priority: NF_IP_PRI_NAT_DST },
        rules: [
          ...(hook === 'output' ? [loopbackRule()] : []),
          [...matchLocalDestination(), decide(jump('hostports'))],
        ],
      })),
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC },
        rules: [snatRule(4), snatRule(6)],
      },
    ],
  };
}

function whenPlan(conditions: Conditions): ChainPlan {
  const { family, handle } = conditions;
  return {
    name: whenChain(conditions),
    rules: forwardRules(family, conditionalSets(family, handle)),
  };
}

/**
 * Only ports with conditions reach the chain that evaluates them: all others cost one lookup, however many conditions there are.
 * Same as: `meta l4proto . th dport vmap @conditional4`
 */
function conditionalRule(family: 4 | 6): Expression[] {
  return [
    ...matchFamily(family),
    loadProtocol(REG.first),
    loadDestinationPort(REG.quarter(1)),
    followVerdict(SETS[family].conditional, REG.first),
  ];
}

/**
 * Same as: `ct label set 107 dnat ip to ip daddr . meta l4proto . th dport map @specific4` and
 * `ct label set 107 dnat ip to meta l4proto . th dport map @wildcard4`, but only for ports in the map
 */
function forwardRules(family: 4 | 6, { specific, wildcard }: ForwardSets): Expression[][] {
  const afterAddress = REG.quarter(quartersOf(family));
  const forward = [
    ...setLabel(FORWARDED_LABEL, REG.quarter(8)),
    dnat(family === 4 ? 'ip' : 'ip6', REG.first, afterAddress),
  ];
  return [
    [
      ...matchFamily(family),
      loadAddress(family, 'daddr', REG.first),
      loadProtocol(afterAddress),
      loadDestinationPort(REG.quarter(quartersOf(family) + 1)),
      lookUp(specific, REG.first, REG.first),
      ...forward,
    ],
    [
      ...matchFamily(family),
      loadProtocol(REG.first),
      loadDestinationPort(REG.quarter(1)),
      lookUp(wildcard, REG.first, REG.first),
      ...forward,
    ],
  ];
}

/**
 * Only for connections that this table has translated: those that kube-proxy or others forward to the same pod keep their source.
 * Same as: `ct label 107 ip daddr vmap @snat4`
 */
function snatRule(family: 4 | 6): Expression[] {
  return [
    ...matchLabel(FORWARDED_LABEL),
    ...matchFamily(family),
    loadAddress(family, 'daddr', REG.first),
    followVerdict(SETS[family].snat, REG.first),
  ];
}

/**
 * IPv6 has no counterpart of route_localnet, so a connection from ::1 cannot reach a pod: the ports of ::1 remain the host's own.
 * Same as: `ip6 daddr ::1 return`
 */
function loopbackRule(): Expression[] {
  return [
    ...matchFamily(6),
    loadAddress(6, 'daddr', REG.first),
    isEqual(REG.first, ipToBytes(parseIp('::1'))),
    decide({ code: NFT_RETURN }),
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
 * `route_localnet` exposes the host's loopback addresses to everything behind the interface; this rule blocks that.
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

/** Number of 32-bit registers that an address occupies. */
function quartersOf(family: 4 | 6): number {
  return family === 4 ? 1 : 4;
}
