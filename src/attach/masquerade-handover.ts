// How is masquerading moved from our sets to the rules that the reference plugins delete?
import type { HandoverMode } from '../cni/env.ts';
import type { Cidr } from '../net/cidr.ts';
import { renderIp } from '../net/ip.ts';
import { listOwned } from '../netlink/nft/owned-table.ts';
import type { Call } from '../plugin/define.ts';
import { noteOf } from './handle.ts';
import { removeMasquerade } from './masquerade.ts';
import {
  checkIptablesMasquerade,
  ensureIptablesMasquerade,
  removeIptablesMasquerade,
} from './masquerade-iptables.ts';
import { SETS } from './masquerade-skeleton.ts';
import { attachmentOf } from './owner.ts';
import { listMarkedEnds } from './veth.ts';

/**
 * Makes iptables masquerade the attachment in the chain that the reference's DEL expects, then removes its elements from
 * our sets. For a moment both masquerade; there is no moment when neither does.
 *
 * Without its interface an attachment sends nothing, and the reference's DEL removes no rules. In that case the elements
 * are just removed.
 * @param cidrs the addresses of the attachment; if empty, only the owner of the elements can be reported
 * @returns what was in our sets
 */
export function handOverMasquerading(call: Call, cidrs: readonly Cidr[], mode: HandoverMode): string[] {
  const { hostNft } = call;
  const owner = attachmentOf(call);
  const note = noteOf(owner);
  if (listOwned(hostNft, SETS, one => one === note).length === 0) return [];
  if (mode === 'do') {
    // Rewriting existing rules would leave connections that start at this moment without them.
    const stands = listMarkedEnds(call).length > 0;
    if (stands && !isInIptables(call, cidrs)) ensureIptablesMasquerade(hostNft, owner, cidrs);
    removeMasquerade(hostNft, owner, cidrs);
    // A concurrent DEL may have looked for the rules before they existed.
    if (listMarkedEnds(call).length === 0)
      removeIptablesMasquerade(hostNft, owner, () => cidrs.map(({ ip }) => ip));
  }
  return [`masquerading of ${cidrs.map(({ ip }) => renderIp(ip)).join(' and ')}`];
}

function isInIptables(call: Call, cidrs: readonly Cidr[]): boolean {
  try {
    checkIptablesMasquerade(call.hostNft, attachmentOf(call), cidrs);
    return true;
  } catch {
    return false;
  }
}
