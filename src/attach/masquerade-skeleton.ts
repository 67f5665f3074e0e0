// Which fixed rules implement masquerading, so that an attachment only adds elements?
import { netmaskOf } from '../net/cidr.ts';
import { ipToBytes, renderIp } from '../net/ip.ts';
import { NF_IP_PRI_NAT_SRC } from '../netlink/nft/chain.ts';
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

/** Every set and map; their elements belong to one attachment each. */
export const SETS: readonly NftSet[] = [PODS[4], PODS[6], LOCAL[4], LOCAL[6]];

/** A jump to the chain that decides about traffic from an address of this prefix length, with this source. */
export function verdictFor(cidr: Masqueraded): ReturnType<typeof goto> {
  return goto(chainName(cidr));
}

/** The table, with the chains that subnets of these prefix lengths need. */
export function planSkeleton(cidrs: readonly Masqueraded[]): Skeleton {
  const subnets = new Map(cidrs.map(cidr => [chainName(cidr), subnetRules(cidr)]));
  return {
    table: TABLE,
    comment: 'catena: masquerading of bridge networks',
    sets: SETS,
    chains: [
      ...[...subnets].map(([name, rules]) => ({ name, rules })),
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC },
        rules: ['ip saddr vmap @pods4', 'ip6 saddr vmap @pods6'],
      },
    ],
  };
}

function subnetRules(cidr: Masqueraded): string[] {
  const { source } = cidr;
  const netmask = renderIp(netmaskOf(cidr));
  return cidr.ip.family === 4
    ? [
        `ip saddr . ip daddr & ${netmask} @local4 return`,
        'ip daddr 224.0.0.0/4 return',
        source ? `snat ip to ${renderIp(source)}` : 'masquerade',
      ]
    : [
        `ip6 saddr . ip6 daddr & ${netmask} @local6 return`,
        'ip6 daddr ff00::/8 return',
        source ? `snat ip6 to ${renderIp(source)}` : 'masquerade',
      ];
}

function chainName({ ip, prefix, source }: Masqueraded): string {
  if (source) return `snat${ip.family}_${prefix}_${Buffer.from(ipToBytes(source)).toString('hex')}`;
  return `masq${ip.family}_${prefix}`;
}
