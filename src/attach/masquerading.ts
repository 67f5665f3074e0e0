// How does a plugin masquerade a container's traffic with the configured packet filter?

import type { AttachmentId } from '../cni/attachment.ts';
import type { HandoverMode } from '../cni/env.ts';
import { type Cidr, cidrContains, findCidr, type Ip, parseCidr, renderIp } from '../net/ip.ts';
import type { NatRule } from '../netlink/iptables/nat-rule.ts';
import { findExemption, findOvertaken } from '../netlink/iptables/precedence.ts';
import { doProgramsChange, getRestore } from '../netlink/iptables/program.ts';
import { renderTable, tryOut } from '../netlink/nft/message.ts';
import { listOwned } from '../netlink/nft/skeleton.ts';
import { addTable } from '../netlink/nft/table.ts';
import type { Call, KeptAttachments } from '../plugin/define.ts';
import { tryAll } from '../plugin/steps.ts';
import {
  backendOf,
  checkMasquerade,
  countReferenceRules,
  ensureMasquerade,
  ensureNoStrays,
  findOtherOwners,
  type MasqBackend,
  type MasqConf,
  type Masqueraded,
  removeMasquerade,
  removeReferenceMasquerade,
  removeStaleMasquerade,
  removeStaleReferenceMasquerade,
  SETS,
  TABLE,
} from './masquerade.ts';
import {
  checkIptablesMasquerade,
  ensureIptablesMasquerade,
  findOtherIptablesOwners,
  removeIptablesMasquerade,
  removeStaleIptablesMasquerade,
} from './masquerade-iptables.ts';
import { attachmentOf, noteOf, refuserFor } from './owner.ts';

import { listMarkedEnds, listPairs } from './veth.ts';

/**
 * Masquerades what the addresses send beyond their subnets. Registers its own rollback.
 * @throws CniError 101 when one of the addresses belongs to another attachment that is alive
 */
export function startMasquerading(call: Call, conf: MasqConf, cidrs: readonly Masqueraded[]): void {
  const owner = attachmentOf(call);
  const { hostNft } = call;
  if (chooseBackend(call, conf, cidrs) === 'nftables') {
    call.onFailure('stop masquerading', () => removeMasquerade(hostNft, owner));
    ensureMasquerade(hostNft, owner, cidrs, refuserFor(call));
    return;
  }
  const addresses = cidrs.map(({ ip }) => ip);
  refuserFor(call)([
    ...findOtherOwners(hostNft, owner, cidrs),
    ...findOtherIptablesOwners(hostNft, owner, addresses),
  ]);
  call.onFailure('stop masquerading', () => {
    removeMasquerade(hostNft, owner, cidrs);
    removeIptablesMasquerade(hostNft, owner, () => addresses);
  });
  ensureIptablesMasquerade(hostNft, owner, cidrs);
  stopStrays(call, owner, cidrs);
}

/** The kernel translates no packet without a connection, in whichever packet filter. Legacy iptables may be all that it has. */
function stopStrays({ hostNft, log }: Call, owner: AttachmentId, cidrs: readonly Masqueraded[]): void {
  try {
    ensureNoStrays(hostNft, owner, cidrs);
  } catch (thrown) {
    log.warn('packets of no connection leave with the address of the container: nf_tables cannot drop them', {
      cause: (thrown as Error).message,
    });
  }
}

/** The configured packet filter, unless another one leaves more to others, who decided before. */
function chooseBackend(call: Call, conf: MasqConf, cidrs: readonly Masqueraded[]): MasqBackend {
  if (backendOf(conf) === 'nftables')
    return conf.ipMasqBackend === undefined && isExempted(call, cidrs) ? 'iptables' : 'nftables';
  const table = cidrs.flatMap(({ ip }) => findOvertaken(call.hostNft, ip.family, 'source') ?? [])[0];
  if (table === undefined) return 'iptables';
  call.log.warn(
    `nftables masquerades: iptables would translate connections before table "${table}", which was there first`,
  );
  return 'nftables';
}

/**
 * Whether rules of iptables exempt some of what the addresses send, as guides to IPsec and VPNs have it: that holds for masquerading
 * by iptables only.
 */
function isExempted({ hostNft, log }: Call, cidrs: readonly Masqueraded[]): boolean {
  const exempted = cidrs.flatMap(({ ip, source }) => {
    const isConcerned = (rule: NatRule) =>
      !rule.source || cidrContains(rule.source.cidr, ip) !== rule.source.not;
    const where = findExemption(hostNft, ip.family, ['POSTROUTING'], isConcerned);
    return where ? { where, family: ip.family, source } : [];
  });
  if (exempted.length === 0) return false;
  const canFollow = exempted.every(({ where, family, source }) => !source && doProgramsChange(family, where));
  if (!canFollow) {
    log.warn('iptables exempts connections from masquerading, which nftables masquerades nevertheless', {
      hint: `exempt them in chain "admin" of table ${renderTable(TABLE)} as well`,
    });
  }
  return canFollow;
}

/** Stops masquerading the call's attachment, whichever plugin started it and with whichever packet filter. */
export async function stopMasquerading(call: Call): Promise<void> {
  const owner = attachmentOf(call);
  const { hostNft } = call;
  await tryAll([
    () => removeMasquerade(hostNft, owner, addressesOf(call)),
    () => removeReferenceMasquerade(hostNft, owner),
    () => removeIptablesMasquerade(hostNft, owner, () => addressesIfShared(call, owner)),
  ]);
}

/** Stops masquerading the network's attachments that GC does not keep. */
export async function stopStaleMasquerading(call: Call, kept: KeptAttachments): Promise<void> {
  const { hostNft, network } = call;
  await tryAll([
    () => removeStaleMasquerade(hostNft, network, kept),
    () => removeStaleReferenceMasquerade(hostNft, network, kept),
    () => removeStaleIptablesMasquerade(hostNft, network, kept),
  ]);
}

/**
 * Checks that the addresses are masqueraded. Rules made by the reference plugin before ours replaced it are as good as our
 * own.
 * @throws Error naming what is missing
 */
export function checkMasquerading(call: Call, backend: MasqBackend, cidrs: readonly Masqueraded[]): void {
  const owner = attachmentOf(call);
  const { hostNft } = call;
  const checks = [checkMasquerade, checkIptablesMasquerade];
  const [first, other] = backend === 'iptables' ? checks.reverse() : checks;
  try {
    first?.(hostNft, owner, cidrs);
  } catch (thrown) {
    // ADD takes the other packet filter when that leaves more to others.
    const isChosen = cidrs.some(({ source }) => source);
    if (
      isChosen ||
      !(isMasquerading(other, call, cidrs) || countReferenceRules(hostNft, owner) >= cidrs.length)
    )
      throw thrown;
  }
}

/**
 * Checks that the packet filter is available and that we may change it.
 * @throws Error with the kernel's message, or naming the missing program
 */
export function probeMasquerading(call: Call, backend: MasqBackend): void {
  if (backend === 'nftables') tryOut(call.hostNft, [addTable(TABLE)]);
  else getRestore(4);
}

/** The attachment's addresses according to the runtime. */
function addressesOf({ prevResult }: Call): readonly Cidr[] {
  return (prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
}

/** The attachment's own addresses, when another interface of the container may share rules keyed by container and network. */
function addressesIfShared(call: Call, owner: AttachmentId): readonly Ip[] | undefined {
  const shared = listPairs(call.host, owner.network).some(
    ({ owner: other }) => other.containerId === owner.containerId && other.ifname !== owner.ifname,
  );
  if (!shared) return undefined;
  const { interfaces = [], ips = [] } = call.prevResult ?? {};
  const own = interfaces.findIndex(one => one.name === owner.ifname && one.sandbox);
  return ips.flatMap(({ address, interface: at }) => (at === own ? parseCidr(address).ip : []));
}

function isMasquerading(
  check: typeof checkMasquerade | undefined,
  call: Call,
  cidrs: readonly Cidr[],
): boolean {
  try {
    check?.(call.hostNft, attachmentOf(call), cidrs);
    return check !== undefined;
  } catch {
    return false;
  }
}

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
