// Which fixed objects does port mapping need in the kernel, independently of the mappings?
import { type Cidr, netmaskOf } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import { FORWARDED_LABEL } from '../../src/netlink/iptables/filter-rule.ts';
import { NF_IP_PRI_RAW, OWN_NAT } from '../../src/netlink/nft/chain.ts';
import type { Skeleton } from '../../src/netlink/nft/skeleton.ts';
import type { Conditions } from './conditions.ts';
import { conditionalSets, FIXED_SETS, type ForwardSets, SETS, TABLE } from './sets.ts';

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
    version: 3,
    sets: [...FIXED_SETS, ...forwarding],
    chains: [
      ...snat.values(),
      { name: SNAT_ALL, rules: ['masquerade'] },
      ...conditions.map(one => ({
        name: whenChain(one),
        rules: forwardRules(one.family, conditionalSets(one.family, one.handle)),
      })),
      { name: askingChain(4) },
      { name: askingChain(6) },
      {
        name: 'hostports',
        rules: [
          // Only ports with conditions reach the chain that evaluates them: all others cost one lookup, however many conditions
          // there are.
          'meta nfproto ipv4 meta l4proto . th dport vmap @conditional4',
          ...forwardRules(4, SETS[4]),
          'meta nfproto ipv6 meta l4proto . th dport vmap @conditional6',
          ...forwardRules(6, SETS[6]),
        ],
      },
      {
        name: 'guard',
        base: { type: 'filter', hook: 'prerouting', priority: NF_IP_PRI_RAW },
        // `route_localnet` exposes the host's loopback addresses to everything behind the interface; this rule blocks that. The
        // comparison ends after the terminating zero of the name.
        rules: ['iifname != lo\0* ip daddr 127.0.0.0/8 drop'],
      },
      {
        name: 'prerouting',
        base: { type: 'nat', hook: 'prerouting', priority: OWN_NAT.dst },
        rules: ['fib daddr type local jump hostports'],
      },
      {
        name: 'output',
        base: { type: 'nat', hook: 'output', priority: OWN_NAT.dst },
        rules: [
          // IPv6 has no counterpart of route_localnet, so a connection from ::1 cannot reach a pod: the ports of ::1 remain the
          // host's own.
          'ip6 daddr ::1 return',
          'fib daddr type local jump hostports',
        ],
      },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: OWN_NAT.src },
        // Only for connections that this table has translated: those that kube-proxy or others forward to the same pod keep their
        // source.
        rules: [
          `ct label ${FORWARDED_LABEL} ip daddr vmap @snat4`,
          `ct label ${FORWARDED_LABEL} ip6 daddr vmap @snat6`,
        ],
      },
    ],
  };
}

/** Forward to the pod and label the connection, but only for ports in the maps. */
function forwardRules(family: 4 | 6, { specific, wildcard }: ForwardSets): string[] {
  const ip = family === 4 ? 'ip' : 'ip6';
  const forward = `meta nfproto ipv${family} ct label set ${FORWARDED_LABEL} dnat ${ip} to`;
  return [
    `${forward} ${ip} daddr . meta l4proto . th dport map @${specific.name}`,
    `${forward} meta l4proto . th dport map @${wildcard.name}`,
  ];
}

function snatRules(pod: Cidr): string[] {
  const netmask = renderIp(netmaskOf(pod));
  return pod.ip.family === 4
    ? ['ip saddr 127.0.0.0/8 masquerade', `ip saddr & ${netmask} . ip daddr @hairpin4 masquerade`]
    : [`ip6 saddr & ${netmask} . ip6 daddr @hairpin6 masquerade`];
}
