// How does iptables masquerade an attachment, in the chains that the reference plugins use?
import type { AttachmentId } from '../cni/attachment.ts';
import {
  type Cidr,
  FAMILIES,
  type Family,
  IP_BITS,
  type Ip,
  parseCidr,
  renderIp,
  subnetOf,
} from '../net/ip.ts';
import { listLegacyNat, listNftNat, natTable } from '../netlink/iptables/nat.ts';
import { type NatRule, renderRule } from '../netlink/iptables/nat-rule.ts';
import { restoreNat } from '../netlink/iptables/program.ts';
import { commitAfterReading } from '../netlink/nft/message.ts';
import { deleteChain, deleteRule, flushChain, hasChain } from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { KeptAttachments } from '../plugin/define.ts';
import { confirm } from '../plugin/steps.ts';
import { attachmentChain } from './masquerade.ts';
import type { FormerOwner } from './owner.ts';

const POSTROUTING = 'POSTROUTING';
const MULTICAST: Readonly<Record<Family, Cidr>> = { 4: parseCidr('224.0.0.0/4'), 6: parseCidr('ff00::/8') };

/**
 * Masquerades what the addresses send beyond their subnets, with one transaction per family. A container's interfaces on
 * one network share a chain, as in the reference, so existing rules are kept.
 */
export function ensureIptablesMasquerade(
  socket: NetlinkSocket,
  owner: AttachmentId,
  cidrs: readonly Cidr[],
): void {
  for (const family of FAMILIES) {
    const own = cidrs.filter(({ ip }) => ip.family === family);
    if (own.length === 0) continue;
    const chain = attachmentChain(owner);
    // An ADD that died may have left rules for these addresses, which would then exist twice.
    removeRules(socket, family, chain, () => own.map(({ ip }) => ip));
    const present = listChain(socket, family, chain);
    const kept = present.filter(rule => rule.target === 'ACCEPT' && rule.destination);
    const rules = mergeRules(kept, rulesFor(owner, family, own));
    restoreNat(family, [`:${chain} - [0:0]`, ...rules.map(rule => `-A ${renderRule(rule)}`)]);
  }
}

/** The owners named by rules that jump from the addresses to other chains. */
export function findOtherIptablesOwners(
  socket: NetlinkSocket,
  owner: AttachmentId,
  addresses: readonly Ip[],
): FormerOwner[] {
  return FAMILIES.flatMap(family => {
    const own = addresses.filter(ip => ip.family === family);
    if (own.length === 0) return [];
    const rules = [...listNftNat(socket, family, POSTROUTING), ...listLegacyNat(family)];
    return rules.flatMap(({ chain, target, source, comment }) => {
      const ip = own.find(one => isSource(source, one));
      const other = ownerIn(comment);
      const isOther = chain === POSTROUTING && other !== undefined && target === attachmentChain(other);
      return isOther && ip && target !== attachmentChain(owner) ? { ip, owner: other } : [];
    });
  });
}

/**
 * Stops masquerading an attachment, whichever plugin started it and whichever packet filter holds the rules.
 * @param addresses called when there is something to remove: the attachment's own addresses if another interface of the
 * container shares the chain; undefined for all
 */
export function removeIptablesMasquerade(
  socket: NetlinkSocket,
  owner: Pick<AttachmentId, 'network' | 'containerId'>,
  addresses: () => readonly Ip[] | undefined,
): void {
  for (const family of FAMILIES) removeRules(socket, family, attachmentChain(owner), addresses);
}

/** Stops masquerading the network's containers that GC does not keep. */
export function removeStaleIptablesMasquerade(
  socket: NetlinkSocket,
  network: string,
  kept: KeptAttachments,
): void {
  for (const family of FAMILIES) {
    const rules = [...listNftNat(socket, family), ...listLegacyNat(family)];
    const stale = rules.filter(({ chain, comment }) => {
      const id = containerIn(comment, network);
      // A comment may contain anything; the name of the chain is derived from network and container.
      if (id === undefined || chain !== attachmentChain({ network, containerId: id })) return false;
      return !kept.some(({ containerId }) => containerId === id);
    });
    for (const chain of new Set(stale.map(rule => rule.chain)))
      removeRules(socket, family, chain, () => undefined);
  }
}

/** @throws Error naming the rules that should exist, and those that do */
export function checkIptablesMasquerade(
  socket: NetlinkSocket,
  owner: AttachmentId,
  cidrs: readonly Cidr[],
): void {
  const chain = attachmentChain(owner);
  for (const family of FAMILIES) {
    const own = cidrs.filter(({ ip }) => ip.family === family);
    if (own.length === 0) continue;
    const jumps = [...listNftNat(socket, family, POSTROUTING), ...listLegacyNat(family)].filter(
      rule => rule.chain === POSTROUTING && rule.target === chain,
    );
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
  const comment = commentOf(owner);
  const accepted = cidrs.map(cidr => ({ cidr: subnetOf(cidr), not: false }));
  return [
    ...accepted.map(destination => ({ chain, target: 'ACCEPT', destination, comment })),
    { chain, target: 'MASQUERADE', destination: { cidr: MULTICAST[family], not: true }, comment },
    ...cidrs.map(({ ip }) => ({
      chain: POSTROUTING,
      target: chain,
      source: { cidr: { ip, prefix: IP_BITS[family] }, not: false },
      comment,
    })),
  ];
}

/** Rules of other interfaces first, each rule once. */
function mergeRules(kept: readonly NatRule[], own: readonly NatRule[]): NatRule[] {
  const byText = new Map([...kept, ...own].map(rule => [renderRule(rule), rule]));
  return [...byText.values()];
}

function listChain(socket: NetlinkSocket, family: Family, chain: string): NatRule[] {
  const isHere = hasChain(socket, natTable(family), chain);
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

function commentOf({ network, containerId }: Pick<AttachmentId, 'network' | 'containerId'>): string {
  return `name: "${network}" id: "${containerId}"`;
}

function ownerIn(comment: string | undefined): Pick<AttachmentId, 'network' | 'containerId'> | undefined {
  const [, network, containerId] = /^name: "([^"]*)" id: "([^"]*)"$/.exec(comment ?? '') ?? [];
  return network !== undefined && containerId !== undefined ? { network, containerId } : undefined;
}

function containerIn(comment: string | undefined, network: string): string | undefined {
  const start = `name: "${network}" id: "`;
  return comment?.startsWith(start) && comment.endsWith('"') ? comment.slice(start.length, -1) : undefined;
}
