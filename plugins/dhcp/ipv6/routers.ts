// Which routers are on the link?
//
// The kernel asks for advertisements when the interface comes up, and acts on them. This listens beside it, for what a result says
// about gateway, prefix and resolvers.

import { parseMac } from '../../../src/net/interface.ts';
import { renderIp } from '../../../src/net/ip.ts';
import { inNetns } from '../../../src/sys/netns.ts';
import {
  closePacketSocket,
  icmpv6Of,
  openPacketSocket,
  type PacketSocket,
  receivePacket,
  sendPacket,
} from '../../../src/sys/packet-socket.ts';
import type { OpenPlace } from '../give-back.ts';
import { findLinkLocal } from './client/conversation.ts';
import {
  type Advertisement,
  decodeAdvertisement,
  encodeSolicitation,
  ROUTER_ADVERTISEMENT,
} from './codec/advertisement.ts';

/** linux/if_ether.h */
const ETH_P_IPV6 = 0x86dd;
/** RFC 2464, section 7: that of ff02::2. */
const ALL_ROUTERS = parseMac('33:33:00:00:00:02');
/** More routers than a link has; a forger could name any number. */
const MAX_ROUTERS = 8;
const MOST_FRAMES = 1_000;
/** A router says less: what is larger is cut, and ignored. */
const ROOM_BYTES = 4096;
/** RFC 4861, section 6.2.6: a router answers within half a second. */
const ANSWER_MS = 1_000;
const POLL_MS = 25;

/** Listens to routers until it is closed. */
export interface RouterWatch {
  /**
   * Asks for advertisements, from the interface's link-local address if it can be used yet: a router then answers to that address,
   * also when it has just told everyone and may not do so again for three seconds (RFC 4861, section 6.2.6).
   * @throws SystemError when the interface is gone or down
   */
  solicit(): void;
  /** The latest advertisement of each router so far, in the order in which they were first heard. */
  heard(): readonly Advertisement[];
  close(): void;
}

/** Begins to listen. */
export function watchRouters(place: OpenPlace): RouterWatch {
  const { netns, link } = place;
  const socket = inNetns(netns, () =>
    openPacketSocket(link.index, ETH_P_IPV6, icmpv6Of(ROUTER_ADVERTISEMENT)),
  );
  const known = new Map<string, Advertisement>();
  return {
    solicit() {
      const address = findLinkLocal(place);
      const sender = address && link.mac ? { address, mac: parseMac(link.mac) } : undefined;
      sendPacket(socket, encodeSolicitation(sender), ALL_ROUTERS);
    },
    heard() {
      drain(socket, one => {
        const name = renderIp(one.router);
        if (known.has(name) || known.size < MAX_ROUTERS) known.set(name, one);
      });
      return [...known.values()];
    },
    close: () => closePacketSocket(socket),
  };
}

/**
 * Waits until a router has been heard, on an interface through which a host of the link has just been heard. What was asked before that
 * may be lost: the port at the other end did not forward yet, or the router itself had no address to answer from.
 * @param times to ask, if need be; a second passes after each
 * @returns none when there is no router
 */
export async function awaitRouters(routers: RouterWatch, times: number): Promise<readonly Advertisement[]> {
  for (let left = times, askAgainAt = 0; ; ) {
    const heard = routers.heard();
    if (heard.length > 0) return heard;
    if (performance.now() >= askAgainAt) {
      if (left-- === 0) return heard;
      routers.solicit();
      askAgainAt = performance.now() + ANSWER_MS;
    }
    await Bun.sleep(POLL_MS);
  }
}

/** A link full of advertisements must not keep an ADD from ending. */
function drain(socket: PacketSocket, take: (one: Advertisement) => void): void {
  const room = new Uint8Array(ROOM_BYTES);
  for (let left = MOST_FRAMES; left > 0; left--) {
    const packet = receivePacket(socket, room);
    if (packet === undefined) return;
    const one = decodeAdvertisement(packet.bytes);
    if (one) take(one);
  }
}
