// Which attachment does the packet filter name, and does an address still belong to another, living one?

import { type AttachmentId, findOwner, isSameContainer, renderOwner, shortId } from '../cni/attachment.ts';
import { ADDRESS_TAKEN, CniError } from '../cni/errors.ts';
import { findOnRecord, findUse, type Holder, type Use } from '../ipam/holders.ts';
import { type Ip, renderIp } from '../net/ip.ts';
import { findElements } from '../netlink/nft/element.ts';
import { COMMENT_MAX_LENGTH, type NftSet } from '../netlink/nft/table.ts';
import { type Link, listLinks } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call } from '../plugin/define.ts';
import { closeNetns, findNetns, type Netns, sameNetns } from '../sys/netns.ts';

/** A short handle for keys of sets, and a human-readable note for comments. */
export interface FilterOwner {
  readonly handle: string;
  readonly note: string;
}

export function filterOwnerOf(attachment: AttachmentId): FilterOwner {
  return filterOwnerOfNote(noteOf(attachment));
}

/** The comment of an attachment's elements and rules. */
export function noteOf(attachment: AttachmentId): string {
  return renderOwner(attachment, COMMENT_MAX_LENGTH);
}

export function filterOwnerOfNote(note: string): FilterOwner {
  // 64-bit FNV-1a, cut to the fifteen characters of an interface name, the only text type that nft has.
  const mask = (1n << 64n) - 1n;
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(note)) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & mask;
  return { note, handle: hash.toString(16).padStart(16, '0').slice(-15) };
}

interface AttachmentCall {
  readonly network: string;
  readonly env: Pick<Call['env'], 'containerId' | 'ifname'>;
}

export function attachmentOf(call: AttachmentCall): AttachmentId {
  return { network: call.network, containerId: call.env.containerId, ifname: call.env.ifname };
}

// An IPAM plugin hands out an address once per network, so its previous owner no longer exists. But networks may overlap,
// addresses may be chosen by hand, and leases may get lost. Therefore we look for the attachment that the packet filter
// associates with the address before we replace any of its elements.

/** A container on a network, as iptables knows it: without the interface. */
export type ChainOwner = Pick<AttachmentId, 'network' | 'containerId'>;

/** The container that the reference's comment names after these words; undefined for other comments and for truncated ones. */
export function chainOwnerIn(comment = '', words = ''): ChainOwner | undefined {
  const [, before, network, containerId] = /^(.*)name: "([^"]*)" id: "([^"]*)"$/.exec(comment) ?? [];
  const isOurs = before === words && network !== undefined && containerId !== undefined;
  return isOurs ? { network, containerId } : undefined;
}

/** The owner of an address according to the packet filter. */
export interface FormerOwner {
  readonly ip: Ip;
  /** The note in an element's comment, or what the reference's rules say; undefined when they do not name an owner. */
  readonly owner: string | ChainOwner | undefined;
}

/** @throws CniError 101 when one of the owners is alive */
export type RefuseLiving = (owners: readonly FormerOwner[]) => void;

/**
 * Returns a function that refuses to take an address from an attachment that is alive. It is alive when the alias of a host
 * interface names it and the other end is in a namespace that exists, or when an interface with its name has the address
 * in a namespace other than the call's. If this process may not inspect namespaces, the alias is enough.
 */
export function refuserFor(call: Call): RefuseLiving {
  return owners => {
    if (owners.length === 0) return;
    const use = findUse();
    const devices = listLinks(call.host);
    const own = call.findContainerNetns();
    for (const former of owners) {
      const why = findLife(former, { use, links: devices, own });
      if (why !== undefined) refuse(attachmentOf(call), former, why);
    }
  };
}

/**
 * Whether an attachment with these addresses no longer exists, as far as can be told; false if nothing can be.
 * @param isOfContainer it is another one of the call's own container, so its interface is in the call's namespace
 */
export type IsGone = (owner: FormerOwner['owner'], ips: readonly Ip[], isOfContainer?: boolean) => boolean;

/** Returns a function that tells by the same evidence whether what an attachment holds may be taken from it. */
export function gravediggerFor(call: Call): IsGone {
  return (owner, ips, isOfContainer) => {
    const use = ips.length ? findUse() : undefined;
    if (use === undefined) return false;
    const own = isOfContainer ? undefined : call.findContainerNetns();
    const witnesses = { use, links: listLinks(call.host), own };
    if (ips.some(ip => findLife({ ip, owner }, witnesses) !== undefined)) return false;
    // No interface shows an address that is in a virtual machine, or that gVisor has taken.
    const attachment = isOfContainer ? undefined : attachmentIn(owner);
    const netns = attachment && findOnRecord(attachment);
    return netns === undefined || isIn({ netns }, own);
  };
}

/**
 * The other attachments to which the addresses belong.
 * @param pods whose keys are addresses
 * @param own note of the attachment that asks
 */
export function findFormerOwners(
  socket: NetlinkSocket,
  pods: Readonly<Record<4 | 6, NftSet>>,
  ips: readonly Ip[],
  own: string,
): { readonly ip: Ip; readonly owner: string }[] {
  const places = ips.map(ip => ({ set: pods[ip.family], key: [ip] }));
  const found = findElements(socket, places);
  return ips.flatMap((ip, i) => {
    const owner = found[i]?.comment;
    return owner === undefined || owner === own ? [] : { ip, owner };
  });
}

/** Describes the namespace, other than the call's, in which an interface without our alias has one of the addresses. */
export function findUnnamedHolder(call: Call, ips: readonly Ip[]): string | undefined {
  const use = findUse();
  const witnesses = { use, links: listLinks(call.host), own: call.findContainerNetns() };
  return ips.map(ip => findLife({ ip, owner: undefined }, witnesses)).find(Boolean);
}

interface Witnesses {
  readonly use: Use | undefined;
  readonly links: readonly Link[];
  readonly own: Netns | undefined;
}

/** A human-readable proof that the attachment is alive; undefined when it no longer exists. */
function findLife({ ip, owner }: FormerOwner, { use, links: devices, own }: Witnesses): string | undefined {
  const aliases = devices.flatMap(link => {
    const attachment = findOwner(link.attrs.alias);
    return attachment ? [{ link, attachment }] : [];
  });
  const named = aliases.find(({ link, attachment }) => link.kind !== 'ifb' && noteOf(attachment) === owner);
  if (named) {
    const { index, name } = named.link;
    const path = use ? use.farEnds.get(index) : 'a namespace that is not accessible from here';
    if (path !== undefined) return `its interface is the peer of "${name}", in ${path}`;
  }
  const attachment = attachmentIn(owner);
  const isOthers = ({ netns }: Holder) =>
    aliases.some(one => {
      if (use?.farEnds.get(one.link.index) !== netns) return false;
      return attachment === undefined || !isSameContainer(one.attachment.containerId, attachment.containerId);
    });
  const isItsName = ({ ifname }: Holder) => typeof owner !== 'string' || ifname === findOwner(owner)?.ifname;
  const holder = use?.holders
    .get(renderIp(ip))
    ?.find(one => !one.isHere && isItsName(one) && !isOthers(one) && !isIn(one, own));
  return holder && `interface "${holder.ifname}" has this address in ${holder.netns}`;
}

function attachmentIn(owner: FormerOwner['owner']) {
  return typeof owner === 'string' ? findOwner(owner) : owner;
}

function isIn({ netns }: Pick<Holder, 'netns'>, own: Netns | undefined): boolean {
  const other = own && findNetns(netns);
  if (own === undefined || other === undefined) return false;
  closeNetns(other);
  return sameNetns(own, other);
}

function refuse(asking: AttachmentId, { ip, owner }: FormerOwner, why: string): never {
  const attachment = attachmentIn(owner);
  const holder = attachment ? describe(attachment) : 'a container of another plugin';
  throw new CniError(
    ADDRESS_TAKEN,
    `Cannot use ${renderIp(ip)} for ${describe(asking)}: ${holder} has it and still exists: ${why}`,
    { details: 'give one of them another address, or run DEL for the one that is not needed' },
  );
}

function describe({ network, containerId, ifname }: ChainOwner & { ifname?: string }) {
  return `container "${shortId(containerId)}" on network "${network}"${ifname ? `, interface "${ifname}"` : ''}`;
}
