// Which fixed rules implement masquerading, so that an attachment only adds elements?
import { type Cidr, netmaskOf, parseCidr } from '../net/cidr.ts';
import { ipToBytes } from '../net/ip.ts';
import { addChain, type BaseChain, NF_IP_PRI_NAT_SRC } from '../netlink/nft/chain.ts';
import { goto, NFT_RETURN } from '../netlink/nft/data.ts';
import { maskRegister } from '../netlink/nft/expr/bitwise.ts';
import { decide } from '../netlink/nft/expr/immediate.ts';
import { followVerdict, isInSet } from '../netlink/nft/expr/lookup.ts';
import { masquerade } from '../netlink/nft/expr/nat.ts';
import type { Expression } from '../netlink/nft/expr.ts';
import type { Table } from '../netlink/nft/message.ts';
import { addRule, countRules, flushChain } from '../netlink/nft/rule.ts';
import { addSet, type NftSet } from '../netlink/nft/set.ts';
import { loadAddress, matchAddress, matchFamily, REG } from '../netlink/nft/statements.ts';
import { addTable } from '../netlink/nft/table.ts';
import type { NetlinkSocket, Request } from '../netlink/socket.ts';

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

const POSTROUTING = 'postrouting';
const HOOKED: BaseChain = { type: 'nat', hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC };
const MULTICAST = { 4: parseCidr('224.0.0.0/4'), 6: parseCidr('ff00::/8') } as const;

/** A jump to the chain that decides about traffic from an address of this prefix length. */
export function verdictFor({ ip, prefix }: Cidr): ReturnType<typeof goto> {
  return goto(chainName(ip.family, prefix));
}

/**
 * The requests that create what is missing of the skeleton for subnets of these kinds: none for all but the first
 * attachment, everything after a flush of the rule set.
 */
export function skeletonChanges(socket: NetlinkSocket, cidrs: readonly Cidr[]): Request[] {
  const chains = wantedChains(cidrs);
  const present = countRules(socket, TABLE);
  const damaged = chains.filter(chain => present.get(chain.name) !== chain.rules.length);
  if (damaged.length === 0) return [];
  return [
    addTable(TABLE, 'catena: masquerading of bridge networks'),
    ...[PODS[4], PODS[6], LOCAL[4], LOCAL[6]].map(addSet),
    ...chains.map(({ name, base }) => addChain(TABLE, name, base)),
    ...damaged.flatMap(({ name, rules }) => [
      ...(present.get(name) ? [flushChain(TABLE, name)] : []),
      ...rules.map(rule => addRule(TABLE, name, rule)),
    ]),
  ];
}

interface ChainPlan {
  readonly name: string;
  readonly base?: BaseChain;
  readonly rules: readonly Expression[][];
}

/** Chains that are jumped to come first: the target of a rule or verdict must exist. */
function wantedChains(cidrs: readonly Cidr[]): ChainPlan[] {
  const byName = new Map<string, ChainPlan>();
  for (const cidr of cidrs) {
    const name = chainName(cidr.ip.family, cidr.prefix);
    byName.set(name, { name, rules: subnetRules(cidr) });
  }
  const dispatch = ([4, 6] as const).map(family => [
    ...matchFamily(family),
    loadAddress(family, 'saddr', REG.first),
    followVerdict(PODS[family], REG.first),
  ]);
  return [...byName.values(), { name: POSTROUTING, base: HOOKED, rules: dispatch }];
}

/**
 * Same as: `ip saddr . ip daddr & <netmask> @local4 return`, `ip daddr 224.0.0.0/4 return`, `masquerade`
 */
function subnetRules(cidr: Cidr): Expression[][] {
  const { family } = cidr.ip;
  const quarters = family === 4 ? 1 : 4;
  const [source, destination] = [REG.quarter(0), REG.quarter(quarters)];
  return [
    [
      // Redundant in this chain, but without it nft prints the addresses as raw payload.
      ...matchFamily(family),
      loadAddress(family, 'saddr', source),
      loadAddress(family, 'daddr', destination),
      maskRegister(destination, ipToBytes(netmaskOf(cidr))),
      isInSet(LOCAL[family], source),
      decide({ code: NFT_RETURN }),
    ],
    [...matchFamily(family), ...matchAddress('daddr', MULTICAST[family]), decide({ code: NFT_RETURN })],
    [masquerade()],
  ];
}

function chainName(family: 4 | 6, prefix: number): string {
  return `masq${family}_${prefix}`;
}
