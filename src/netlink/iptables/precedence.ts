// Would iptables translate connections that a program with tables of its own has to decide about?
// iptables has the priority that kube-proxy and others take, too, and of equal chains the one that was made last runs first.
import type { Family } from '../../net/ip.ts';
import { renderTable } from '../nft/message.ts';
import {
  listRules,
  listTableNames,
  listTranslatingChains,
  NF_IP_PRI_NAT_DST,
  NF_IP_PRI_NAT_SRC,
} from '../nft/table.ts';
import type { NetlinkSocket } from '../socket.ts';
import { decodeNatRule, hasLegacyTable, listLegacyNat, listNftNat, type NatRule, natTable } from './nat.ts';
import { restoreMode } from './program.ts';

const PLACES = {
  destination: { hook: 'prerouting', priority: NF_IP_PRI_NAT_DST },
  source: { hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC },
} as const;

/** Tables of CNI plugins: the reference's, and ours of releases that had this priority. */
const OF_CNI = /^(cni|catena)_/;

/**
 * The table of another program whose chain iptables' translation runs before, because iptables' own table does not exist
 * yet or was made later; undefined if there is none. Of two tables, the order of their handles is that of their chains. What legacy
 * iptables has already cannot be told.
 */
export function findOvertaken(
  socket: NetlinkSocket,
  family: Family,
  which: keyof typeof PLACES,
): string | undefined {
  const nat = natTable(family);
  const others = listTranslatingChains(socket, PLACES[which])
    .map(({ table }) => table)
    .filter(one => (one.family === nat.family || one.family === 'inet') && !OF_CNI.test(one.name))
    .filter(one => renderTable(one) !== renderTable(nat));
  if (others.length === 0) return undefined;
  const isLegacy = restoreMode(family) === 'legacy';
  if (isLegacy && hasLegacyTable(family, 'nat')) return undefined;
  const handles = new Map(listTableNames(socket).map(one => [renderTable(one), one.handle]));
  const own = isLegacy ? undefined : handles.get(renderTable(nat));
  const first = others.find(one => own === undefined || (handles.get(renderTable(one)) ?? 0n) < own);
  return first && renderTable(first);
}

// An ACCEPT in its table "nat" ends that table alone: chains of nf_tables that come later translate the connection after all. So what
// IPsec and VPN guides, kube-proxy in its mode IPVS and operators exempt holds for rules of iptables only.

/** Beginning of the chains of CNI plugins, which accept what stays in the subnet of a container. */
const CNI = 'CNI-';
/** linux/netfilter/nf_tables.h, NFTA_VERDICT_CODE with NF_ACCEPT, as in a rule's message. */
const ACCEPTING = Uint8Array.of(8, 0, 1, 0, 0, 0, 0, 1);

/**
 * The packet filter in which a rule exempts connections: one of the chains themselves, or of one that they jump to directly.
 * kube-proxy's chains for single services are a level deeper, and number thousands. Costs a request for each chain if iptables has
 * no rules.
 * @param hooks names of built-in chains
 * @param isConcerned whether a rule applies, as far as its matches can be read
 */
export function findExemption(
  socket: NetlinkSocket,
  family: Family,
  hooks: readonly string[],
  isConcerned: (rule: NatRule) => boolean,
): 'nft' | 'legacy' | undefined {
  const exempts = (rules: readonly NatRule[], within: (chain: string) => readonly NatRule[]): boolean => {
    const concerned = rules.filter(isConcerned);
    const chains = [...new Set(concerned.map(({ target }) => target))].filter(name => !name.startsWith(CNI));
    return (
      concerned.some(({ target }) => target === 'ACCEPT' || target === 'RETURN') ||
      chains.some(chain => within(chain).some(rule => rule.target === 'ACCEPT' && isConcerned(rule)))
    );
  };
  const inNft = (chain: string) =>
    listRules(socket, natTable(family), chain, [ACCEPTING]).map(rule => decodeNatRule(family, rule));
  if (hooks.some(hook => exempts(listNftNat(socket, family, hook), inNft))) return 'nft';
  const legacy = listLegacyNat(family);
  const inLegacy = (chain: string) => legacy.filter(rule => rule.chain === chain);
  // The last entry of a built-in chain is its policy.
  return hooks.some(hook => exempts(inLegacy(hook).slice(0, -1), inLegacy)) ? 'legacy' : undefined;
}
