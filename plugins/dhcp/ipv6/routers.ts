// Which routers are on the link?
//
// The kernel asks for advertisements when the interface comes up, and acts on them. This listens beside it, for what a result says
// about gateway, prefix and resolvers.

import { renderIp } from '../../../src/net/ip.ts';
import { parseMac } from '../../../src/net/mac.ts';
import { inNetns } from '../../../src/sys/netns.ts';
import {
  closePacketSocket,
  icmpv6Of,
  openPacketSocket,
  type PacketSocket,
  receivePacket,
  sendPacket,
} from '../../../src/sys/packet-socket.ts';
import type { Place } from '../client/session.ts';
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
const ROOM_BYTES = 0x10000;

/** Listens to routers until it is closed. */
export interface RouterWatch {
  /** Asks for advertisements. @throws SystemError when the interface is gone or down */
  solicit(): void;
  /** The latest advertisement of each router so far, in the order in which they were first heard. */
  heard(): readonly Advertisement[];
  close(): void;
}

/** Begins to listen. */
export function watchRouters({ netns, link }: Place): RouterWatch {
  const socket = inNetns(netns, () =>
    openPacketSocket(link.index, ETH_P_IPV6, icmpv6Of(ROUTER_ADVERTISEMENT)),
  );
  const known = new Map<string, Advertisement>();
  return {
    solicit: () => sendPacket(socket, encodeSolicitation(), ALL_ROUTERS),
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
