// How does a plugin masquerade a container's traffic with the configured packet filter, and with iptables in the reference's chains?

import type { AttachmentId } from '../cni/attachment.ts';
import type { HandoverMode } from '../cni/env.ts';
import { succeeds } from '../cni/errors.ts';
import {
  type Cidr,
  cidrContains,
  FAMILIES,
  type Family,
  findCidr,
  hostCidr,
  type Ip,
  parseCidr,
  renderIp,
  sameIp,
  subnetOf,
} from '../net/ip.ts';
import { listFlows, removeFlow } from '../netlink/conntrack.ts';
import {
  COMMENT_MAX_BYTES,
  listLegacyNat,
  listNftNat,
  type NatRule,
  natTable,
  renderRule,
} from '../netlink/iptables/nat.ts';
import { findExemption, findOvertaken } from '../netlink/iptables/precedence.ts';
import { doProgramsChange, getRestore, restoreNat } from '../netlink/iptables/program.ts';
import { commitAfterReading, renderTable, tryOut } from '../netlink/nft/message.ts';
import { listOwned } from '../netlink/nft/skeleton.ts';
import { addTable, deleteChain, deleteRule, flushChain, hasChain } from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call, KeptAttachments } from '../plugin/define.ts';
import { confirm, mend, tryAll } from '../plugin/steps.ts';
import {
  attachmentChain,
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
  restoreRules,
  SETS,
  TABLE,
  withSources,
} from './masquerade.ts';
import { attachmentOf, chainOwnerIn, type FormerOwner, noteOf, refuserFor } from './owner.ts';
import { listMarkedEnds, listPairs } from './veth.ts';

/**
 * Masquerades what the addresses send beyond their subnets. Registers its own rollback.
 * @throws CniError 101 when one of the addresses belongs to another attachment that is alive
 */
export function startMasquerading(call: Call, conf: MasqConf, addresses: readonly Cidr[]): void {
  const cidrs = withSources(conf, addresses);
  if (chooseBackend(call, conf, cidrs) === 'nftables') {
    call.onFailure('stop masquerading', () => removeMasquerade(call));
    ensureMasquerade(call, cidrs);
    return;
  }
  refuserFor(call)([...findOtherOwners(call, cidrs), ...findOtherIptablesOwners(call, cidrs)]);
  call.onFailure('stop masquerading', () => {
    removeMasquerade(call, cidrs);
    removeIptablesMasquerade(call, () => cidrs.map(({ ip }) => ip));
  });
  ensureIptablesMasquerade(call, cidrs);
  stopStrays(call, cidrs);
}

/** The same, if {@link checkMasquerading} finds something missing; also writes the rules again if others have changed them. */
export function repairMasquerading(call: Call, conf: MasqConf, addresses: readonly Cidr[]): void {
  mend(
    () => checkMasquerading(call, conf, addresses),
    () => {
      restoreRules(call.hostNft, withSources(conf, addresses));
      startMasquerading(call, conf, addresses);
      forgetUntranslated(call, addresses);
    },
  );
}

/**
 * Makes the kernel forget what the addresses have sent beyond their subnets while nothing masqueraded it: it decides once about a flow,
 * so one that goes on, as of UDP, would never get an answer.
 */
function forgetUntranslated({ hostNft, log }: Call, cidrs: readonly Cidr[]): void {
  try {
    for (const { ip: source } of cidrs) {
      for (const flow of listFlows(hostNft, { family: source.family, source })) {
        const isLocal = cidrs.some(cidr => cidrContains(cidr, flow.responder));
        if (!flow.hasAnswer && !isLocal && sameIp(flow.answered, source)) removeFlow(hostNft, flow);
      }
    }
  } catch (thrown) {
    log.warn('flows that were not masqueraded may remain', { reason: (thrown as Error).message });
  }
}

/** The kernel translates no packet without a connection, in whichever packet filter. Legacy iptables may be all that it has. */
function stopStrays(call: Call, cidrs: readonly Masqueraded[]): void {
  try {
    ensureNoStrays(call, cidrs);
  } catch (thrown) {
    call.log.warn(
      'packets of no connection leave with the address of the container: nf_tables cannot drop them',
      {
        cause: (thrown as Error).message,
      },
    );
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
  const cidrs = (call.prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  await tryAll([
    () => removeMasquerade(call, cidrs),
    () => removeReferenceMasquerade(call),
    () => removeIptablesMasquerade(call, () => addressesIfShared(call)),
  ]);
}

/** Stops masquerading the network's attachments that GC does not keep. */
export async function stopStaleMasquerading(call: Call, kept: KeptAttachments): Promise<void> {
  await tryAll([
    () => removeStaleMasquerade(call, kept),
    () => removeStaleReferenceMasquerade(call, kept),
    () => removeStaleIptablesMasquerade(call, kept),
  ]);
}

/**
 * Checks that the addresses are masqueraded. Rules made by the reference plugin before ours replaced it are as good as our
 * own.
 * @throws Error naming what is missing
 */
export function checkMasquerading(call: Call, conf: MasqConf, addresses: readonly Cidr[]): void {
  const cidrs = withSources(conf, addresses);
  const inSets = () => checkMasquerade(call, cidrs);
  const inIptables = () => checkIptablesMasquerade(call, cidrs);
  const [check, other] = backendOf(conf) === 'iptables' ? [inIptables, inSets] : [inSets, inIptables];
  try {
    check();
  } catch (thrown) {
    // ADD takes the other packet filter when that leaves more to others.
    const isChosen = cidrs.some(({ source }) => source);
    if (isChosen || !(succeeds(other) || countReferenceRules(call) >= cidrs.length)) throw thrown;
  }
}

/**
 * Checks that the packet filter is available and that we may change it.
 * @throws Error with the kernel's message, or naming the missing program
 */
export function probeMasquerading(call: Call, conf: MasqConf): void {
  if (backendOf(conf) === 'nftables') tryOut(call.hostNft, [addTable(TABLE)]);
  else getRestore(4);
}

/** The attachment's own addresses, when another interface of the container may share rules keyed by container and network. */
function addressesIfShared(call: Call): readonly Ip[] | undefined {
  const owner = attachmentOf(call);
  const shared = listPairs(call.host, owner.network).some(
    ({ owner: other }) => other.containerId === owner.containerId && other.ifname !== owner.ifname,
  );
  if (!shared) return undefined;
  const { interfaces = [], ips = [] } = call.prevResult ?? {};
  const own = interfaces.findIndex(one => one.name === owner.ifname && one.sandbox);
  return ips.flatMap(({ address, interface: at }) => (at === own ? parseCidr(address).ip : []));
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
  const note = noteOf(attachmentOf(call));
  if (listOwned(call.hostNft, SETS, one => one === note).length === 0) return [];
  if (mode === 'do') {
    // Rewriting existing rules would leave connections that start at this moment without them.
    const stands = listMarkedEnds(call).length > 0;
    const isMade = () => succeeds(() => checkIptablesMasquerade(call, cidrs));
    if (stands && !isMade()) ensureIptablesMasquerade(call, cidrs);
    removeMasquerade(call, cidrs);
    // A concurrent DEL may have looked for the rules before they existed.
    if (listMarkedEnds(call).length === 0) removeIptablesMasquerade(call, () => cidrs.map(({ ip }) => ip));
  }
  return [`masquerading of ${cidrs.map(({ ip }) => renderIp(ip)).join(' and ')}`];
}

const POSTROUTING = 'POSTROUTING';
const MULTICAST: Readonly<Record<Family, Cidr>> = { 4: parseCidr('224.0.0.0/4'), 6: parseCidr('ff00::/8') };

/**
 * Masquerades what the addresses send beyond their subnets, with one transaction per family. A container's interfaces on
 * one network share a chain, as in the reference, so existing rules are kept.
 */
function ensureIptablesMasquerade(call: Call, cidrs: readonly Cidr[]): void {
  const { hostNft: socket } = call;
  const owner = attachmentOf(call);
  const chain = attachmentChain(owner);
  for (const [family, own] of byFamily(cidrs)) {
    // An ADD that died may have left rules for these addresses, which would then exist twice.
    removeRules(socket, family, chain, () => own.map(({ ip }) => ip));
    const present = listChain(socket, family, chain);
    const kept = present.filter(rule => rule.target === 'ACCEPT' && rule.destination);
    // Rules of other interfaces first, each rule once.
    const rules = new Set([...kept, ...rulesFor(owner, family, own)].map(renderRule));
    restoreNat(family, [`:${chain} - [0:0]`, ...[...rules].map(rule => `-A ${rule}`)]);
  }
}

/** The owners named by rules that jump from the addresses to other chains. */
function findOtherIptablesOwners(call: Call, cidrs: readonly Cidr[]): FormerOwner[] {
  const chain = attachmentChain(attachmentOf(call));
  return byFamily(cidrs).flatMap(([family, own]) =>
    listChain(call.hostNft, family, POSTROUTING).flatMap(({ target, source, comment }) => {
      const ip = own.find(one => isSource(source, one.ip))?.ip;
      const other = chainOwnerIn(comment);
      const isOther = other !== undefined && target === attachmentChain(other);
      return isOther && ip && target !== chain ? { ip, owner: other } : [];
    }),
  );
}

function byFamily(cidrs: readonly Cidr[]): (readonly [Family, readonly Cidr[]])[] {
  const parts = FAMILIES.map(family => [family, cidrs.filter(({ ip }) => ip.family === family)] as const);
  return parts.filter(([, own]) => own.length > 0);
}

/**
 * Stops masquerading an attachment, whichever plugin started it and whichever packet filter holds the rules.
 * @param addresses called when there is something to remove: the attachment's own addresses if another interface of the
 * container shares the chain; undefined for all
 */
function removeIptablesMasquerade(call: Call, addresses: () => readonly Ip[] | undefined): void {
  const chain = attachmentChain(attachmentOf(call));
  for (const family of FAMILIES) removeRules(call.hostNft, family, chain, addresses);
}

/** Stops masquerading the network's containers that GC does not keep. */
function removeStaleIptablesMasquerade({ hostNft: socket, network }: Call, kept: KeptAttachments): void {
  for (const family of FAMILIES) {
    const rules = [...listNftNat(socket, family), ...listLegacyNat(family)];
    const stale = rules.filter(({ chain, comment }) => {
      const owner = chainOwnerIn(comment);
      // A comment may contain anything; the name of the chain is derived from network and container.
      if (owner?.network !== network || chain !== attachmentChain(owner)) return false;
      return !kept.some(({ containerId }) => containerId === owner.containerId);
    });
    for (const chain of new Set(stale.map(rule => rule.chain)))
      removeRules(socket, family, chain, () => undefined);
  }
}

/** @throws Error naming the rules that should exist, and those that do */
function checkIptablesMasquerade(call: Call, cidrs: readonly Cidr[]): void {
  const { hostNft: socket } = call;
  const owner = attachmentOf(call);
  const chain = attachmentChain(owner);
  for (const [family, own] of byFamily(cidrs)) {
    const jumps = listChain(socket, family, POSTROUTING).filter(({ target }) => target === chain);
    const found = [...listChain(socket, family, chain), ...jumps].map(renderRule);
    const missing = rulesFor(owner, family, own)
      .map(renderRule)
      .find(rule => !found.includes(rule));
    if (missing) confirm('masquerading: iptables rules', missing, found);
  }
}

/** The rules that the reference would add, in an order that exempts every subnet before masquerading. */
function rulesFor(owner: AttachmentId, family: Family, cidrs: readonly Cidr[]): NatRule[] {
  const chain = attachmentChain(owner);
  const comment = `name: "${owner.network}" id: "${owner.containerId}"`.slice(0, COMMENT_MAX_BYTES);
  const accepted = cidrs.map(cidr => ({ cidr: subnetOf(cidr), not: false }));
  return [
    ...accepted.map(destination => ({ chain, target: 'ACCEPT', destination, comment })),
    { chain, target: 'MASQUERADE', destination: { cidr: MULTICAST[family], not: true }, comment },
    ...cidrs.map(({ ip }) => ({
      chain: POSTROUTING,
      target: chain,
      source: { cidr: hostCidr(ip), not: false },
      comment,
    })),
  ];
}

function listChain(socket: NetlinkSocket, family: Family, chain: string): NatRule[] {
  const isHere = chain === POSTROUTING || hasChain(socket, natTable(family), chain);
  return [
    ...(isHere ? listNftNat(socket, family, chain) : []),
    ...listLegacyNat(family).filter(rule => rule.chain === chain),
  ];
}

/** Removes the jumps to the chain, or only those from these addresses, and the chain itself once no jump is left. */
function removeRules(
  socket: NetlinkSocket,
  family: Family,
  chain: string,
  addresses: () => readonly Ip[] | undefined,
): void {
  const split = <R extends NatRule>(rules: readonly R[]) => {
    const jumps = rules.filter(rule => rule.chain === POSTROUTING && rule.target === chain);
    const own = jumps.length ? addresses() : undefined;
    const gone = jumps.filter(({ source }) => own?.some(ip => isSource(source, ip)) ?? true);
    return { gone, left: jumps.length - gone.length };
  };
  const table = natTable(family);
  // Deleted by handle, which needs no iptables program.
  if (hasChain(socket, table, chain)) {
    commitAfterReading(socket, () => {
      const { gone, left } = split(listNftNat(socket, family, POSTROUTING));
      return [
        ...gone.map(({ handle }) => deleteRule(table, POSTROUTING, handle)),
        ...(left || !hasChain(socket, table, chain)
          ? []
          : [flushChain(table, chain), deleteChain(table, chain)]),
      ];
    });
  }
  const legacy = listLegacyNat(family);
  const { gone, left } = split(legacy);
  const isOver = left === 0 && legacy.some(rule => rule.chain === chain);
  const lines = [
    ...gone.map(rule => `-D ${renderRule(rule)}`),
    ...(isOver ? [`-F ${chain}`, `-X ${chain}`] : []),
  ];
  if (lines.length) restoreNat(family, lines, 'legacy');
}

/** Besides the plain address, the reference has also written it with the prefix length of its subnet. */
function isSource(source: NatRule['source'], ip: Ip): boolean {
  return source !== undefined && renderIp(source.cidr.ip) === renderIp(ip);
}
