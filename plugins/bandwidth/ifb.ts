// Which IFB device holds the queue of what an attachment sends?
import { type Attachment, findOwner, renderOwner } from '../../src/cni/attachment.ts';
import { tolerating } from '../../src/netlink/errors.ts';
import { createLink, findLink, getLink, type Link, listLinks, setLink } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { Errno } from '../../src/sys/errno.ts';

const PREFIX = 'bwp';
const HEX_DIGITS = 12;

/** Packets that may wait in the device itself: with 0, as the reference has it, every single one stops the queue. */
const TX_QUEUE_PACKETS = 1000;

/** linux/if.h: IFALIASZ, less the zero at the end and a byte that the kernel does not use either. */
const ALIAS_MAX_BYTES = 254;

/**
 * Names the device may have: the reference's, so that either plugin can clean up after the other, and one of our own
 * in case the same container is attached to the network twice and the other attachment has the first.
 */
export function ifbNamesOf({ network, containerId, ifname }: Attachment): readonly [string, string] {
  return [hashedName(`${network}${containerId}`), hashedName(`${network}${containerId}${ifname}`)];
}

/** The attachment's devices; one that names another attachment is left alone. */
export function findIfbs(host: NetlinkSocket, attachment: Attachment): Link[] {
  return ifbNamesOf(attachment).flatMap(name => {
    const link = findLink(host, name);
    return link && isOwn(link, attachment) ? [link] : [];
  });
}

/** Every device that names an attachment of the network. */
export function listIfbsOf(
  host: NetlinkSocket,
  network: string,
): { readonly link: Link; readonly owner: Attachment }[] {
  return listLinks(host).flatMap(link => {
    const owner = isIfb(link) ? findOwner(link.attrs.alias) : undefined;
    return owner?.network === network ? [{ link, owner }] : [];
  });
}

/**
 * The attachment's device, up and with the given MTU; made if there is none.
 * Same as: `ip link add bwp… type ifb`, `ip link set bwp… up mtu <mtu> txqueuelen 1000 alias catena:…`
 */
export function ensureIfb(host: NetlinkSocket, attachment: Attachment, mtu: number): Link {
  const names = ifbNamesOf(attachment);
  for (const name of names) {
    if (findLink(host, name) === undefined) {
      // Somebody may be faster with the same name: then it is theirs.
      tolerating([Errno.EEXIST], () => createLink(host, { name, kind: 'ifb' }));
    }
    const link = getLink(host, name);
    if (!isOwn(link, attachment)) continue;
    const alias = renderOwner(attachment);
    const note = alias.length <= ALIAS_MAX_BYTES ? { alias } : {};
    setLink(host, link.index, { up: true, mtu, txqlen: TX_QUEUE_PACKETS, ...note });
    return link;
  }
  throw new Error(`Cannot create link "${names.join('" or "')}": both names are taken by other attachments`);
}

/** The reference leaves no note: what has its name and no note is taken for the attachment's. */
function isOwn(link: Link, attachment: Attachment): boolean {
  if (!isIfb(link)) return false;
  const owner = findOwner(link.attrs.alias);
  return owner === undefined || renderOwner(owner) === renderOwner(attachment);
}

function isIfb(link: Link): boolean {
  return link.kind === 'ifb' && link.name.startsWith(PREFIX);
}

function hashedName(text: string): string {
  return PREFIX + Bun.CryptoHasher.hash('sha512', text, 'hex').slice(0, HEX_DIGITS);
}
