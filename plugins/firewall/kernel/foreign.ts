// Do rules that the reference wrote belong to another live pod?
// The rules name an address but no owner. If nf_tables does not know the address either, its current holder is looked up.
import { findUnnamedHolder, refuserFor } from '../../../src/attach/living-owner.ts';
import type { Ip } from '../../../src/net/ip.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { hasRulesFor } from './iptables.ts';
import { isKnown } from './release.ts';

/**
 * Rejects addresses of another live pod that legacy iptables already accepts; rules in nf_tables are checked in the transaction
 * that adds to them.
 * @throws CniError 101
 */
export function refuseOldRules(call: Call, pods: readonly Ip[]): void {
  if (isKnown(call.hostNft, pods) || !hasRulesFor(call.hostNft, pods, 'old')) return;
  refuseStrangers(call, pods);
}

/** @throws CniError 101 when an interface in another namespace, which no alias names, has one of the addresses */
export function refuseStrangers(call: Call, pods: readonly Ip[]): void {
  refuserFor(call)(pods.map(ip => ({ ip, owner: undefined })));
}

/** Whether rules of a pod that is not ours may be removed because no other pod has the addresses. */
export function isForgettable(call: Call, pods: readonly Ip[]): boolean {
  if (pods.length === 0 || isKnown(call.hostNft, pods)) return false;
  return !hasRulesFor(call.hostNft, pods) || findUnnamedHolder(call, pods) === undefined;
}
