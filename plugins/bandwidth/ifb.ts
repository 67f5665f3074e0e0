// Which IFB device queues the packets that a device of an attachment receives?

import { type AttachmentId, findOwner, renderOwner } from '../../src/cni/attachment.ts';
import type { Request } from '../../src/netlink/codec.ts';
import {
  ALIAS_MAX_BYTES,
  findLinks,
  getLink,
  IFF_UP,
  type Link,
  listLinks,
  makeLink,
  setLinkRequest,
} from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';

const PREFIX = 'bwp';
const HEX_DIGITS = 12;
const NAME = /^bwp[0-9a-f]{12}$/;

/** Packets that the device itself may queue: with 0, as in the reference, every packet stops the queue. */
const TX_QUEUE_PACKETS = 1000;

/**
 * Names the device may have: the reference's, so that either plugin can clean up after the other, and one of our own in case the
 * same container is attached to the network twice and the other attachment has the first.
 */
export function ifbNamesOf({ network, containerId, ifname }: AttachmentId): readonly [string, string] {
  return [hashedName(`${network}${containerId}`), hashedName(`${network}${containerId}${ifname}`)];
}

/** The attachment's devices; a device that names another attachment is skipped. */
export function findIfbs(host: NetlinkSocket, attachment: AttachmentId): Link[] {
  return ownAmong(findLinks(host, ifbNamesOf(attachment)), attachment);
}

/** Those of the devices that belong to the attachment. */
export function ownAmong(links: readonly (Link | undefined)[], attachment: AttachmentId): Link[] {
  return links.flatMap(link => (link && isOwn(link, attachment) ? [link] : []));
}

/** Devices whose names look like those of bandwidth. */
export function listIfbs(host: NetlinkSocket): Link[] {
  return listLinks(host).filter(link => link.kind === 'ifb' && NAME.test(link.name));
}

/** The attachment that a device names; the reference leaves no note. */
export function ownerOf({ attrs }: Link): AttachmentId | undefined {
  return findOwner(attrs.alias);
}

/** The device of an attachment, and the settings it still needs. */
export interface Ifb {
  readonly link: Link;
  /** True when it was just created and has no qdisc yet. */
  readonly isNew: boolean;
  readonly settings: readonly Request[];
}

/** Which device is wanted, and where. */
export interface WantedIfb {
  /** Of the namespace that the device is for. */
  readonly socket: NetlinkSocket;
  /** That namespace, if it is not the host's. */
  readonly netns: Netns | undefined;
  readonly attachment: AttachmentId;
  readonly mtu: number;
  /** The existing devices with the names that it may have. */
  readonly present: readonly (Link | undefined)[];
}

/**
 * The attachment's device, created if missing. It is up and has the given MTU once the settings have been sent.
 * Same as: `ip link add bwp… mtu <mtu> txqueuelen 1000 type ifb`, `ip link set bwp… up alias catena:…`
 */
export function ensureIfb({ socket, netns, attachment, mtu, present }: WantedIfb): Ifb {
  const names = ifbNamesOf(attachment);
  for (const [i, name] of names.entries()) {
    // Another process may create a device of that name first; then it is not ours.
    const made = present[i]
      ? undefined
      : makeLink(socket, { name, kind: 'ifb', ...settingsFor(mtu), up: false });
    const link = present[i] ?? made ?? getLink(socket, name);
    if (!isOwn(link, attachment)) continue;
    // It needs no addresses; with their routes the kernel would be busy whenever any interface appears or disappears.
    const silence = () => trySysctl(`net/ipv6/conf/${name}/disable_ipv6`, '1');
    if (made) netns ? inNetns(netns, silence) : silence();
    return { link, isNew: made !== undefined, settings: requestsFor(link, attachment, mtu) };
  }
  throw new Error(`Cannot create device "${names.join('" or "')}": other attachments use both names`);
}

function settingsFor(mtu: number) {
  return { up: true, mtu, txqlen: TX_QUEUE_PACKETS };
}

function requestsFor(link: Link, attachment: AttachmentId, mtu: number): Request[] {
  const alias = renderOwner(attachment);
  const note = alias.length <= ALIAS_MAX_BYTES ? alias : undefined;
  const isSettled =
    (link.flags & IFF_UP) !== 0 &&
    link.mtu === mtu &&
    link.attrs.txqlen === TX_QUEUE_PACKETS &&
    link.attrs.alias === note;
  return isSettled ? [] : [setLinkRequest(link.index, { ...settingsFor(mtu), alias: note })];
}

/** The reference leaves no note, so a device with the attachment's name and no note is considered its own. */
function isOwn(link: Link, attachment: AttachmentId): boolean {
  if (link.kind !== 'ifb') return false;
  const owner = ownerOf(link);
  return owner === undefined || renderOwner(owner) === renderOwner(attachment);
}

function hashedName(text: string): string {
  return PREFIX + Bun.CryptoHasher.hash('sha512', text, 'hex').slice(0, HEX_DIGITS);
}
