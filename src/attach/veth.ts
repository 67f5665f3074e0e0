// How is the veth pair between host and container created, found and deleted?
import { type AttachmentId, findOwner, hostEndName, renderOwner } from '../cni/attachment.ts';
import { randomHighMac } from '../net/interface.ts';
import {
  ALIAS_MAX_BYTES,
  bridgePortRequest,
  findHostEnd,
  findLink,
  getLink,
  type Link,
  listLinks,
  makeLink,
  removeLink,
  setLinkRequest,
} from '../netlink/rtnl/link.ts';
import { NetlinkError, type NetlinkSocket } from '../netlink/socket.ts';
import type { Call, Done, KeptAttachments } from '../plugin/define.ts';
import { deleteInContainer } from '../plugin/delete-devices.ts';
import { Errno } from '../sys/errno.ts';
import { interfaceExists } from './container.ts';
import { attachmentOf } from './owner.ts';

const NAME_ATTEMPTS = 10;

export interface Pair {
  readonly host: Link;
  readonly container: Link;
}

interface PairPlan {
  /** Index of the bridge that the host end becomes a port of; undefined for none. */
  readonly master?: number;
  /** Bridge port flags of the host end. */
  readonly port?: { readonly hairpin?: boolean; readonly isolated?: boolean } | undefined;
  /** Bytes; 0 for the kernel's default. */
  readonly mtu: number;
  readonly mac?: string | undefined;
}

/**
 * Creates the pair in one request, with the host end up. The other end is created directly in the container with its final
 * name. The host end gets a name that is derived from the attachment, or a random one if that is taken, the attachment as its alias,
 * and a hardware address: udev replaces one that the kernel chose (`MACAddressPolicy=persistent`), after ADD has reported it.
 * Registers its own undo step.
 * @throws CniError when the container already has an interface of that name
 */
export function createPair(call: Call, plan: PairPlan): Pair {
  const { host, container, env } = call;
  const { master, port } = plan;
  const link = createNamedPair(call, plan);
  try {
    host.requestAll([
      setLinkRequest(link.index, { up: true, alias: aliasOf(attachmentOf(call)) }),
      ...(port ? [bridgePortRequest(link.index, port)] : []),
    ]);
    const inside = getLink(container, env.ifname);
    call.onFailure(`delete device "${link.name}"`, () => removeLink(host, link.index));
    return { host: master === undefined ? link : { ...link, master }, container: inside };
  } catch (thrown) {
    // At once: the bridge may have vanished, and the caller tries again.
    removeLink(host, link.index);
    throw thrown;
  }
}

/**
 * Deletes the pair of an attachment by whichever end can be found: the container's interface, and the host end with the
 * attachment as its alias, else the one that a plugin without aliases reported. An interface of another kind is not ours
 * and is kept. Then does what has to wait until the pair is deleted.
 */
export async function removePair(call: Call, then: () => Done): Promise<void> {
  const { ifname } = call.env;
  const inside = call.findContainerNetns() ? findLink(call.container, ifname) : undefined;
  const outside = inside && findHostEnd(call, inside);
  if (outside && isMarked(outside, attachmentOf(call))) return call.removeDevices([outside], then);
  if (inside?.kind === 'veth') {
    // Without our mark, it may be of another container that came to the path after the namespace was examined.
    if (call.findContainerNetns(true)) deleteInContainer(call, [inside.index]);
  } else if (inside)
    call.log.warn(
      `Cannot delete "${ifname}": it is of kind "${inside.kind}", not the veth that this plugin created`,
    );
  // Also where the container has given the name to another pair: the address of one that stays would be given away.
  const marked = listMarkedEnds(call);
  await call.removeDevices(marked.length ? marked : findReportedEnds(call), then);
}

/** Deletes the network's pairs whose attachments GC does not keep, then does what has to wait for that. */
export async function removeStalePairs(call: Call, kept: KeptAttachments, then: () => Done): Promise<void> {
  const stale = listPairs(call.host, call.network).filter(({ owner }) => !kept.has(owner));
  const links = stale.map(({ link, owner: { containerId, ifname } }) => {
    call.log.info(`Deleting interface "${link.name}" of stale attachment ${containerId}/${ifname}`);
    return link;
  });
  await call.removeDevices(links, then);
}

/** Host ends of pairs that belong to a network, with their attachments. */
export function listPairs(host: NetlinkSocket, network: string): { link: Link; owner: AttachmentId }[] {
  return listLinks(host).flatMap(link => {
    const owner = link.kind === 'veth' ? findOwner(link.attrs.alias) : undefined;
    return owner?.network === network ? { link, owner } : [];
  });
}

function aliasOf(owner: AttachmentId): string {
  return renderOwner(owner, ALIAS_MAX_BYTES);
}

/** Host ends of the call's attachment by alias or first name, whatever happened to its namespace. */
export function listMarkedEnds(call: Call): Link[] {
  const own = attachmentOf(call);
  return listLinks(call.host).filter(link => link.kind === 'veth' && isMarked(link, own));
}

/** An ADD that was killed may have left an end without its alias. */
function isMarked({ name, attrs: { alias } }: Link, owner: AttachmentId): boolean {
  return alias ? alias === aliasOf(owner) : name === hostEndName(owner);
}

/** A name may have been reused by another device, so the hardware address has to match as well. */
function findReportedEnds({ host, prevResult }: Call): Link[] {
  return (prevResult?.interfaces ?? []).flatMap(({ name, mac, sandbox }) => {
    if (sandbox || !name.startsWith('veth') || !mac) return [];
    const link = findLink(host, name);
    const isIt = link?.kind === 'veth' && link.mac === mac.toLowerCase() && !link.attrs.alias;
    return isIt ? [link] : [];
  });
}

function createNamedPair(call: Call, { master, mac, mtu: bytes }: PairPlan): Link {
  const { host, container, containerNetns: netns } = call;
  const owner = attachmentOf(call);
  const mtu = bytes || undefined;
  for (let attempt = 1; ; attempt++) {
    const random = Buffer.from(crypto.getRandomValues(new Uint8Array(4))).toString('hex');
    const name = attempt === 1 ? hostEndName(owner) : `veth${random}`;
    const peer = { name: owner.ifname, netnsFd: netns.fd, mac, mtu };
    const link = makeLink(host, { name, kind: 'veth', mac: randomHighMac(), master, mtu, peer });
    if (link) return link;
    const taken = new NetlinkError(`create link "${name}" of kind veth`, Errno.EEXIST);
    // Either name may be taken; only the host end's can be changed.
    if (findLink(container, owner.ifname)) throw interfaceExists(owner.ifname, netns, taken);
    if (attempt === NAME_ATTEMPTS) throw taken;
  }
}
