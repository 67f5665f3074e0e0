// Which neighbour and forwarding entries exist?
import type { Ip } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { attrs } from '../codec/attrs.ts';
import { ip, mac, u8, u16, u32 } from '../codec/fields.ts';
import { layout } from '../codec/message.ts';
import { struct } from '../codec/struct.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';

/** linux/rtnetlink.h */
const RTM_GETNEIGH = 30;
/** linux/neighbour.h */
const NUD_PERMANENT = 0x80;
/** linux/socket.h */
const AF_INET = 2;
const AF_BRIDGE = 7;
const AF_INET6 = 10;
const { ENOENT } = Errno;

/**
 * linux/neighbour.h: struct ndmsg { __u8 ndm_family; __u8 ndm_pad1; __u16 ndm_pad2; __s32 ndm_ifindex; __u16 ndm_state;
 * __u8 ndm_flags; __u8 ndm_type; }
 */
export const ndmsg = struct('ndmsg', [
  ['family', u8],
  ['_pad1', u8],
  ['_pad2', u16],
  ['index', u32],
  ['state', u16],
  ['flags', u8],
  ['type', u8],
]);

/** linux/neighbour.h, NDA_* */
const neighbourAttrs = attrs('neighbour', {
  destination: [1, ip],
  address: [2, mac],
  master: [9, u32],
});

/** RTM_NEWNEIGH and RTM_GETNEIGH. */
export const neighbourMessage = traced(
  'NETLINK_ROUTE',
  { 28: 'RTM_NEWNEIGH', 30: 'RTM_GETNEIGH' },
  layout(ndmsg, neighbourAttrs),
);

/** A neighbour entry that does not expire. */
export interface Neighbour {
  readonly index: number;
  readonly ip: Ip;
  readonly mac: string | undefined;
}

/** Permanent neighbours of both families. Same as: `ip neighbour show nud permanent` */
export function listPermanentNeighbours(socket: NetlinkSocket): Neighbour[] {
  const body = neighbourMessage.encode({}, {});
  return socket.dump({ op: 'list neighbours', type: RTM_GETNEIGH, body }).flatMap(one => {
    const { header, attrs: own } = neighbourMessage.decode(one);
    // Bridges list their forwarding entries here too, without an address.
    if (!(header.state & NUD_PERMANENT) || own.destination === undefined) return [];
    return { index: header.index, ip: own.destination, mac: own.address };
  });
}

/**
 * Hardware address by which the host reaches an address through a device; undefined when it does not know one.
 * Same as: `ip neighbour get <ip> dev <device>`
 */
export function findNeighbourMac(socket: NetlinkSocket, index: number, ip: Ip): string | undefined {
  const family = ip.family === 4 ? AF_INET : AF_INET6;
  const body = neighbourMessage.encode({ family, index }, { destination: ip });
  const found = socket.find({ op: 'find neighbour', type: RTM_GETNEIGH, body }, [ENOENT]);
  return found && neighbourMessage.decode(found).attrs.address;
}

/**
 * Index of the port behind which a bridge has met a hardware address; undefined when it has not, or the port is gone.
 * Same as: `bridge fdb get <mac> br <bridge>`
 */
export function findForwardingPort(socket: NetlinkSocket, bridge: number, mac: string): number | undefined {
  const body = neighbourMessage.encode({ family: AF_BRIDGE }, { address: mac, master: bridge });
  const found = socket.find({ op: 'find forwarding entry', type: RTM_GETNEIGH, body }, [ENOENT]);
  return found && neighbourMessage.decode(found).header.index;
}
