// Which neighbours has somebody written down for good?
import type { Ip } from '../../net/ip.ts';
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
});

/** RTM_NEWNEIGH and RTM_GETNEIGH. */
export const neighbourMessage = traced(
  'NETLINK_ROUTE',
  { 28: 'RTM_NEWNEIGH', 30: 'RTM_GETNEIGH' },
  layout(ndmsg, neighbourAttrs),
);

/** A neighbour that does not go by itself. */
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
