// Does iptables exempt connections from address translation?
// An ACCEPT in its table "nat" ends that table alone: chains of nf_tables that come later translate the connection after all. So what
// IPsec and VPN guides, kube-proxy in its mode IPVS and operators exempt holds for rules of iptables only.
import type { Family } from '../../net/ip.ts';
import { listRules } from '../nft/rule.ts';
import type { NetlinkSocket } from '../socket.ts';
import { listLegacyNat } from './legacy.ts';
import type { NatRule } from './nat-rule.ts';
import { decodeNatRule, listNftNat, natTable } from './nft.ts';

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
