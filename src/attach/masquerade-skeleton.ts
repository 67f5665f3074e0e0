// Which fixed rules implement masquerading, so that an attachment only adds elements?
import { type Cidr, netmaskOf } from '../net/cidr.ts';
import { ipToBytes, renderIp } from '../net/ip.ts';
import { NF_IP_PRI_FILTER, OWN_NAT } from '../netlink/nft/chain.ts';
import { goto } from '../netlink/nft/data.ts';
import type { Table } from '../netlink/nft/message.ts';
import type { NftSet } from '../netlink/nft/set.ts';
import type { Skeleton } from '../netlink/nft/skeleton.ts';
import type { Masqueraded } from './masq-source.ts';

/** Our own table, which contains everything below. */
export const TABLE: Table = { family: 'inet', name: 'catena_masquerade' };

/** Maps a container address to the chain for its prefix length. */
export const PODS: Readonly<Record<4 | 6, NftSet>> = {
  4: { table: TABLE, name: 'pods4', key: ['ipv4_addr'], data: 'verdict' },
  6: { table: TABLE, name: 'pods6', key: ['ipv6_addr'], data: 'verdict' },
};

/** A container address and its own subnet: destinations for which the source address is kept. */
export const LOCAL: Readonly<Record<4 | 6, NftSet>> = {
  4: { table: TABLE, name: 'local4', key: ['ipv4_addr', 'ipv4_addr'] },
  6: { table: TABLE, name: 'local6', key: ['ipv6_addr', 'ipv6_addr'] },
};

/** Maps a container address to the chain that stops what connection tracking cannot translate. */
export const STRAYS: Readonly<Record<4 | 6, NftSet>> = {
  4: { table: TABLE, name: 'strays4', key: ['ipv4_addr'], data: 'verdict' },
  6: { table: TABLE, name: 'strays6', key: ['ipv6_addr'], data: 'verdict' },
};

/** Every set and map; their elements belong to one attachment each. */
export const SETS: readonly NftSet[] = [PODS[4], PODS[6], LOCAL[4], LOCAL[6], STRAYS[4], STRAYS[6]];

/** A jump to the chain that stops stray packets from an address of this prefix length. */
export function strayVerdictFor({ ip, prefix }: Cidr): ReturnType<typeof goto> {
  return goto(strayChain(ip.family, prefix));
}

/** A jump to the chain that decides about traffic from an address of this prefix length, with this source. */
export function verdictFor(cidr: Masqueraded): ReturnType<typeof goto> {
  return goto(chainName(cidr));
}

/**
 * The table, with the chains that subnets of these prefix lengths need. `admin` belongs to the operator: it is evaluated first, its
 * rules are kept, and what it accepts keeps its source.
 */
export function planSkeleton(cidrs: readonly Masqueraded[]): Skeleton {
  const subnets = new Map(
    cidrs.flatMap(cidr => [
      [chainName(cidr), subnetRules(cidr)],
      [strayChain(cidr.ip.family, cidr.prefix), [...exceptions(cidr), 'drop']],
    ]),
  );
  return {
    table: TABLE,
    comment: 'catena: masquerading of bridge networks',
    version: 2,
    sets: SETS,
    chains: [
      ...[...subnets].map(([name, rules]) => ({ name, rules })),
      { name: 'admin' },
      {
        name: 'forward',
        base: { type: 'filter', hook: 'forward', priority: NF_IP_PRI_FILTER },
        // A packet of no connection, such as the reset of one that was forgotten, is never translated, and would leave with the
        // container's address.
        rules: ['ct state invalid ip saddr vmap @strays4', 'ct state invalid ip6 saddr vmap @strays6'],
      },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: OWN_NAT.src },
        rules: ['jump admin', 'ip saddr vmap @pods4', 'ip6 saddr vmap @pods6'],
      },
    ],
  };
}

function subnetRules(cidr: Masqueraded): string[] {
  const { source } = cidr;
  const word = cidr.ip.family === 4 ? 'ip' : 'ip6';
  return [...exceptions(cidr), source ? `snat ${word} to ${renderIp(source)}` : 'masquerade'];
}

/** Destinations for which the source address is kept. */
function exceptions(cidr: Cidr): string[] {
  const netmask = renderIp(netmaskOf(cidr));
  return cidr.ip.family === 4
    ? [`ip saddr . ip daddr & ${netmask} @local4 return`, 'ip daddr 224.0.0.0/4 return']
    : [`ip6 saddr . ip6 daddr & ${netmask} @local6 return`, 'ip6 daddr ff00::/8 return'];
}

function strayChain(family: 4 | 6, prefix: number): string {
  return `stray${family}_${prefix}`;
}

function chainName({ ip, prefix, source }: Masqueraded): string {
  if (source) return `snat${ip.family}_${prefix}_${Buffer.from(ipToBytes(source)).toString('hex')}`;
  return `masq${ip.family}_${prefix}`;
}
