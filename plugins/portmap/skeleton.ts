// Which fixed objects does port mapping need in the kernel, whatever is mapped?
import { type Cidr, netmaskOf, parseCidr } from '../../src/net/cidr.ts';
import { ipToBytes } from '../../src/net/ip.ts';
import { NF_IP_PRI_NAT_DST, NF_IP_PRI_NAT_SRC, NF_IP_PRI_RAW } from '../../src/netlink/nft/chain.ts';
import { jump, NF_DROP } from '../../src/netlink/nft/data.ts';
import { maskRegister } from '../../src/netlink/nft/expr/bitwise.ts';
import { isNotEqual } from '../../src/netlink/nft/expr/cmp.ts';
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
  matchLocalDestination,
  matchTranslatedDestination,
  REG,
} from '../../src/netlink/nft/statements.ts';
import type { Conditions } from './conditions.ts';
import { conditionalSets, FIXED_SETS, type ForwardSets, SETS, TABLE } from './sets.ts';

/** Chain that masquerades every forwarded connection. */
export const SNAT_ALL = 'snat_all';

/** What of an attachment the skeleton depends on: chains are made when the first one needs them, and stay. */
export interface Needs {
  /** Addresses of pods in their subnets. */
  readonly pods: readonly Cidr[];
  readonly conditions: readonly Conditions[];
}

/** Name of the chain that masquerades what comes from the pod's own subnet; one per prefix length. */
export function snatChain({ ip, prefix }: Cidr): string {
  return `snat${ip.family}_${prefix}`;
}

/** Name of the chain that asks each of the conditions in use, and is not part of the skeleton in what it holds. */
export function askingChain(family: 4 | 6): string {
  return `conditions${family}`;
}

/** Name of the chain that forwards where conditions hold. */
export function whenChain({ family, handle }: Pick<Conditions, 'family' | 'handle'>): string {
  return `when${family}_${handle}`;
}

/** Everything that is there for all, and what the attachment needs besides. */
export function planSkeleton({ pods, conditions }: Needs): Skeleton {
  const snat = new Map(pods.map(pod => [snatChain(pod), { name: snatChain(pod), rules: snatRules(pod) }]));
  const forwarding = conditions.flatMap(({ family, handle }) =>
    Object.values(conditionalSets(family, handle)),
  );
  return {
    table: TABLE,
    comment: 'catena: ports of the host mapped to pods',
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
        rules: [[...matchLocalDestination(), decide(jump('hostports'))]],
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
 * Only ports with conditions go where those are asked: all others pay for one look, however many conditions there are.
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
 * Same as: `dnat ip to ip daddr . meta l4proto . th dport map @specific4` and
 * `dnat ip to meta l4proto . th dport map @wildcard4`
 */
function forwardRules(family: 4 | 6, { specific, wildcard }: ForwardSets): Expression[][] {
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
