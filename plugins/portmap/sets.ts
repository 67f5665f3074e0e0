// Which sets and maps does port mapping keep in the kernel?

import { invalidConfig } from '../../src/cni/errors.ts';
import { type Cidr, FAMILIES, netmaskOf, renderIp } from '../../src/net/ip.ts';
import { FORWARDED_LABEL } from '../../src/netlink/iptables/filter.ts';
import type { Expression } from '../../src/netlink/nft/expr.ts';
import { canonicalMatch, MatchError, parseMatch } from '../../src/netlink/nft/match.ts';
import type { Table } from '../../src/netlink/nft/message.ts';
import type { Skeleton } from '../../src/netlink/nft/skeleton.ts';
import { NF_IP_PRI_RAW, type NftSet, OWN_NAT } from '../../src/netlink/nft/table.ts';

/** The conditions as configured, in the syntax of the packet filter. */
interface ConditionWords {
  readonly conditionsV4?: readonly string[] | undefined;
  readonly conditionsV6?: readonly string[] | undefined;
}

/** Conditions of one IP version in nf_tables. */
export interface Conditions {
  readonly family: 4 | 6;
  /** Short enough for names of sets; equal for equal conditions, whichever attachment has them. */
  readonly handle: string;
  /** Human-readable. */
  readonly text: string;
  /** Any of these has to match. */
  readonly alternatives: readonly Expression[][];
}

const HANDLE_DIGITS = 15;

/**
 * The configured conditions, parsed for nf_tables; empty if there are none.
 * @throws CniError 7 naming the part that is not understood
 */
export function parseConditions(conf: ConditionWords): Conditions[] {
  return FAMILIES.flatMap(family => {
    const words = wordsOf(conf, family);
    return words.length ? parse(family, words) : [];
  });
}

/** The handle that represents conditions in the kernel, for either packet filter. */
export function conditionHandle(family: 4 | 6, words: string): string {
  return new Bun.CryptoHasher('sha256').update(`${family} ${words}`).digest('hex').slice(0, HANDLE_DIGITS);
}

/** The words as configured; an empty first word means that there are no conditions. */
export function wordsOf({ conditionsV4, conditionsV6 }: ConditionWords, family: 4 | 6): readonly string[] {
  const words = (family === 4 ? conditionsV4 : conditionsV6) ?? [];
  return words[0] ? words : [];
}

function parse(family: 4 | 6, words: readonly string[]): Conditions {
  try {
    // The reference passes them to nft joined like this, so one array entry may hold several words.
    const text = canonicalMatch(words.join(' '));
    return {
      family,
      handle: conditionHandle(family, text),
      text,
      alternatives: parseMatch(family, text),
    };
  } catch (thrown) {
    if (!(thrown instanceof MatchError)) throw thrown;
    throw invalidConfig(`Cannot use "conditionsV${family}": ${JSON.stringify(words)}: ${thrown.problem}`, {
      details: 'use "backend": "iptables" for matches that nftables does not have',
    });
  }
}

/** The table of our own that holds everything below. */
export const TABLE: Table = { family: 'inet', name: 'catena_portmap' };

/** Where ports are forwarded: for all attachments without conditions, or for those with the same conditions. */
interface ForwardSets {
  /** Protocol and host port, on every address of the host, to address and port of the pod. */
  readonly wildcard: NftSet;
  /** The same for ports taken on one address of the host. */
  readonly specific: NftSet;
}

/** The sets and maps of one IP version. */
interface FamilySets extends ForwardSets {
  /** Host address to the number of ports taken on it alone: the addresses that a wildcard claim has to check. */
  readonly hostips: NftSet;
  /** Protocol and host port that has mappings with conditions, to the chain that evaluates the conditions. */
  readonly conditional: NftSet;
  /** Protocol and host port to the number of such mappings. */
  readonly tally: NftSet;
  /** Attachment and number to one host port of it (0.0.0.0 or :: for all addresses) with subnet and address of the pod. */
  readonly claims: NftSet;
  /** Attachment and number to a claim that another network of its container holds, and to the port of the pod. */
  readonly successors: NftSet;
  /** Attachment to its packet filter and the handle of its conditions; absent for nf_tables without conditions. */
  readonly means: NftSet;
  /** Handle of conditions (or empty), address, protocol and host port that iptables forwards. */
  readonly iptables: NftSet;
  /** Address of a pod to the attachment that owns it. */
  readonly pods: NftSet;
  /** Address of a pod to the chain that decides which sources are masqueraded. */
  readonly snat: NftSet;
  /** Subnet and address of pods: sources in that subnet need masquerading, otherwise replies would bypass the host. */
  readonly hairpin: NftSet;
}

export const SETS: Readonly<Record<4 | 6, FamilySets>> = { 4: familySets(4), 6: familySets(6) };

/** Beginning of a chain's hash to the attachment whose iptables rules the chain holds, where the reference's name is ambiguous. */
export const CHAINS: NftSet = { table: TABLE, name: 'chains', key: ['ifname'], data: ['ifname'] };

/** Every set and map that always exists. */
export const FIXED_SETS: readonly NftSet[] = [...Object.values(SETS[4]), ...Object.values(SETS[6]), CHAINS];

/** Where ports are forwarded for attachments whose conditions have the handle. */
export function conditionalSets(family: 4 | 6, handle: string): ForwardSets {
  return forwardSets(family, `_${handle}`);
}

export function findConditionalSet(name: string): NftSet | undefined {
  const [, kind, family, handle] = /^(wildcard|specific)([46])_([0-9a-f]+)$/.exec(name) ?? [];
  if (handle === undefined) return undefined;
  return conditionalSets(family === '4' ? 4 : 6, handle)[kind as keyof ForwardSets];
}

function familySets(family: 4 | 6): FamilySets {
  const address = addressOf(family);
  const named = (name: string) => ({ table: TABLE, name: `${name}${family}` });
  return {
    ...forwardSets(family, ''),
    // nft has no type for a plain number; a mark is the closest.
    hostips: { ...named('hostips'), key: [address], data: ['mark'] },
    conditional: { ...named('conditional'), key: ['inet_proto', 'inet_service'], data: 'verdict' },
    tally: { ...named('tally'), key: ['inet_proto', 'inet_service'], data: ['mark'] },
    claims: {
      ...named('claims'),
      // The second part numbers the claims of an attachment.
      key: ['ifname', 'inet_service'],
      data: [address, 'inet_proto', 'inet_service', address, address],
    },
    successors: {
      ...named('successors'),
      key: ['ifname', 'inet_service'],
      data: [address, 'inet_proto', 'inet_service', address, 'inet_service'],
    },
    means: { ...named('means'), key: ['ifname'], data: ['ifname', 'ifname'] },
    iptables: { ...named('iptables'), key: ['ifname', address, 'inet_proto', 'inet_service'] },
    pods: { ...named('pods'), key: [address], data: ['ifname'] },
    snat: { ...named('snat'), key: [address], data: 'verdict' },
    hairpin: { ...named('hairpin'), key: [address, address] },
  };
}

function forwardSets(family: 4 | 6, suffix: string): ForwardSets {
  const address = addressOf(family);
  const named = (name: string) => ({ table: TABLE, name: `${name}${family}${suffix}` });
  const data = [address, 'inet_service'] as const;
  return {
    wildcard: { ...named('wildcard'), key: ['inet_proto', 'inet_service'], data },
    specific: { ...named('specific'), key: [address, 'inet_proto', 'inet_service'], data },
  };
}

function addressOf(family: 4 | 6): 'ipv4_addr' | 'ipv6_addr' {
  return family === 4 ? 'ipv4_addr' : 'ipv6_addr';
}

/** Chain that masquerades every forwarded connection. */
export const SNAT_ALL = 'snat_all';

/** The part of the skeleton that depends on the attachment: chains are created when first needed, and kept. */
interface Needs {
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

export function whenChain({ family, handle }: Pick<Conditions, 'family' | 'handle'>): string {
  return `when${family}_${handle}`;
}

/** The chains in which the kernel begins. */
const HOOKS: Skeleton['chains'] = [
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
];

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
      ...HOOKS,
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
