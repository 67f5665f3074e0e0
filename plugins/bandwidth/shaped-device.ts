// Which device do all packets of an attachment pass?

import { attachmentOf } from '../../src/attach/owner.ts';
import { findOwner, renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  IFF_LOOPBACK,
  type Link,
  linkQuestion,
  netnsIdQuestion,
} from '../../src/netlink/rtnl/link.ts';
import { askAll, type NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { Netns } from '../../src/sys/netns.ts';
import type { Direction } from './plan.ts';

/** A device that all packets of an attachment pass. */
export interface ShapedDevice {
  /** Of the namespace that the device is in. */
  readonly socket: NetlinkSocket;
  readonly link: Link;
  /** The direction that the device sends, which is queued on itself; the other one takes a detour through an IFB device. */
  readonly sends: Direction;
  /** The container's, if the device is in there. */
  readonly netns?: Netns;
}

/**
 * The host end of the container's veth: there the container cannot lift its limits. Every other interface has no end on the host,
 * or none that this chain made, and is limited where it is.
 * @throws CniError 7 when there is no such interface
 */
export function getShapedDevice(call: Call, prevResult: Result): ShapedDevice {
  const { ifname, netns } = call.env;
  const link = findLink(call.container, ifname);
  const obstacle = link === undefined ? 'there is no such interface' : 'it is the loopback device';
  if (link === undefined || link.flags & IFF_LOOPBACK) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot limit interface "${ifname}" in "${netns}": ${obstacle}`,
    );
  }
  const peer = link.kind === 'veth' ? findPeer(call, link) : undefined;
  // The result of this chain names what the chain has made on the host.
  return peer && hostInterfacesOf(prevResult).includes(peer.name) ? onHost(call, peer) : inside(call, link);
}

/** Where limits may remain: on the host, and unless this chain made a host end, in the container. */
export function findShapedDevices(call: Call): ShapedDevice[] {
  const link = call.findContainerNetns() && findLink(call.container, call.env.ifname);
  const peer = link?.kind === 'veth' ? findPeer(call, link) : undefined;
  // Another container may have been attached in the namespace after it was examined: its owner is asked for with both in hand.
  if (link === undefined || !call.findContainerNetns(true))
    return findNamed(call).map(one => onHost(call, one));
  const isMade = peer !== undefined && hostInterfacesOf(call.prevResult ?? {}).includes(peer.name);
  const veths = peer ? [peer] : findNamed(call);
  return [...veths.map(veth => onHost(call, veth)), ...(isMade ? [] : [inside(call, link)])];
}

function onHost({ host }: Call, link: Link): ShapedDevice {
  return { socket: host, link, sends: 'ingress' };
}

/** What a tap sends is read by the virtual machine behind it, so it is the host end of that machine. */
function inside({ container, containerNetns }: Call, link: Link): ShapedDevice {
  return {
    socket: container,
    link,
    sends: link.kind === 'tun' ? 'ingress' : 'egress',
    netns: containerNetns,
  };
}

/**
 * Host ends that `prevResult` names. Leaves out missing devices, and devices that have taken over the name: those whose alias
 * names another attachment, or whose hardware address differs from the one in `prevResult`.
 */
function findNamed(call: Call): Link[] {
  const own = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  return (call.prevResult?.interfaces ?? []).flatMap(({ name, mac, sandbox }) => {
    if (sandbox) return [];
    const found = findLink(call.host, name);
    if (found?.kind !== 'veth' || (mac && mac.toLowerCase() !== found.mac)) return [];
    const { alias } = found.attrs;
    return findOwner(alias) === undefined || alias === own ? [found] : [];
  });
}

/** The other end, if it is on the host: an index is only meaningful in its own namespace. */
function findPeer(call: Call, link: Link): Link | undefined {
  if (link.peer <= 0) return undefined;
  const [peer, netnsId] = askAll(call.host, [
    linkQuestion(link.peer),
    netnsIdQuestion(call.containerNetns.fd),
  ]);
  if (peer?.kind !== 'veth' || peer.peer !== link.index) return undefined;
  return (peer.attrs.linkNetnsId ?? -1) === netnsId ? peer : undefined;
}

function hostInterfacesOf({ interfaces = [] }: Pick<Result, 'interfaces'>): string[] {
  return interfaces.filter(({ sandbox }) => !sandbox).map(({ name }) => name);
}
