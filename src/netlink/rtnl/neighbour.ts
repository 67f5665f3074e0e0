// Which neighbour and forwarding entries exist?
import { type Ip, renderIp } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import {
  attrs,
  ip,
  layout,
  mac,
  NLM_F_CREATE,
  NLM_F_REPLACE,
  type Request,
  struct,
  u8,
  u16,
  u32,
} from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { traced } from '../trace.ts';
import { AF_INET, AF_INET6, addressFamily } from './addr.ts';

/** linux/rtnetlink.h */
const RTM_NEWNEIGH = 28;
const RTM_DELNEIGH = 29;
const RTM_GETNEIGH = 30;
/** linux/neighbour.h */
const NUD_NOARP = 0x40;
const NUD_PERMANENT = 0x80;
/** linux/neighbour.h: the entry is the device's own, not that of the bridge it is a port of. */
const NTF_SELF = 0x02;
/** linux/socket.h */
const AF_BRIDGE = 7;
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
  device: [8, u32], // NDA_IFINDEX
  master: [9, u32],
});

/** RTM_NEWNEIGH, RTM_DELNEIGH and RTM_GETNEIGH. */
export const neighbourMessage = traced(
  'NETLINK_ROUTE',
  { 28: 'RTM_NEWNEIGH', 29: 'RTM_DELNEIGH', 30: 'RTM_GETNEIGH' },
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

/** Removes an entry, unless it is gone. Same as: `ip neighbour del <ip> dev <device>` */
export function removeNeighbour(socket: NetlinkSocket, { index, ip }: Pick<Neighbour, 'index' | 'ip'>): void {
  const body = neighbourMessage.encode({ family: addressFamily(ip), index }, { destination: ip });
  const op = `delete neighbour ${renderIp(ip)}`;
  tolerating([ENOENT], () => socket.request({ op, type: RTM_DELNEIGH, body }));
}

/** The entry by which the host reaches an address through a device, if there is one. Same as: `ip neighbour get <ip> dev <device>` */
export function findNeighbour(
  socket: NetlinkSocket,
  index: number,
  ip: Ip,
): { readonly mac: string | undefined; readonly isPermanent: boolean } | undefined {
  const family = addressFamily(ip);
  const body = neighbourMessage.encode({ family, index }, { destination: ip });
  const found = socket.find({ op: 'find neighbour', type: RTM_GETNEIGH, body }, [ENOENT]);
  if (found === undefined) return undefined;
  const { header, attrs: own } = neighbourMessage.decode(found);
  return { mac: own.address, isPermanent: (header.state & NUD_PERMANENT) !== 0 };
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

/** Permanent neighbours of a device, both families. Same as: `ip neighbour show dev <device> nud permanent`, and `ip -6 …` */
export function listPermanentNeighboursOn(socket: NetlinkSocket, index: number): Neighbour[] {
  return [AF_INET, AF_INET6].flatMap(family => {
    const body = neighbourMessage.encode({ family }, { device: index });
    return socket.dump({ op: 'list neighbours', type: RTM_GETNEIGH, body }).flatMap(one => {
      const { header, attrs: own } = neighbourMessage.decode(one);
      const isIt = header.index === index && (header.state & NUD_PERMANENT) !== 0;
      return isIt && own.destination ? { index, ip: own.destination, mac: own.address } : [];
    });
  });
}

/** The request that sets a permanent neighbour, for a batch. Same as: `ip neighbour replace <ip> lladdr <mac> dev <device> nud permanent` */
export function setNeighbourRequest(index: number, address: Ip, mac: string): Request {
  return {
    op: `set neighbour ${renderIp(address)} to ${mac}`,
    type: RTM_NEWNEIGH,
    flags: NLM_F_CREATE | NLM_F_REPLACE,
    body: neighbourMessage.encode(
      { family: addressFamily(address), index, state: NUD_PERMANENT },
      { destination: address, address: mac },
    ),
  };
}

/** The request that removes a neighbour, for a batch; ENOENT if there is none. Same as: `ip neighbour del <ip> dev <device>` */
export function removeNeighbourRequest(index: number, address: Ip): Request {
  const body = neighbourMessage.encode({ family: addressFamily(address), index }, { destination: address });
  return { op: `delete neighbour ${renderIp(address)}`, type: RTM_DELNEIGH, body };
}

/** Where a tunnel sends frames for a hardware address. */
interface Forwarding {
  readonly mac: string;
  readonly to: Ip;
}

/** Forwarding entries of a VXLAN device itself. Same as: `bridge fdb show dev <device>` */
export function listForwarding(socket: NetlinkSocket, index: number): Forwarding[] {
  const body = neighbourMessage.encode({ family: AF_BRIDGE, index }, {});
  return socket.dump({ op: 'list forwarding entries', type: RTM_GETNEIGH, body }).flatMap(one => {
    const { header, attrs: own } = neighbourMessage.decode(one);
    const isIt = header.index === index && own.address !== undefined && own.destination !== undefined;
    return isIt ? { mac: own.address ?? '', to: own.destination as Ip } : [];
  });
}

/** The request that sets the one destination of a hardware address, for a batch. Same as: `bridge fdb replace <mac> dev <device> dst <ip>` */
export function setForwardingRequest(index: number, { mac, to }: Forwarding): Request {
  const op = `set forwarding of ${mac} to ${renderIp(to)}`;
  return {
    op,
    type: RTM_NEWNEIGH,
    flags: NLM_F_CREATE | NLM_F_REPLACE,
    body: encodeForwarding(index, { mac, to }),
  };
}

/** The request that removes an entry, for a batch; ENOENT if there is none. Same as: `bridge fdb del <mac> dev <device> dst <ip>` */
export function removeForwardingRequest(index: number, entry: Forwarding): Request {
  const op = `delete forwarding of ${entry.mac} to ${renderIp(entry.to)}`;
  return { op, type: RTM_DELNEIGH, body: encodeForwarding(index, entry) };
}

function encodeForwarding(index: number, { mac, to }: Forwarding): Uint8Array {
  return neighbourMessage.encode(
    { family: AF_BRIDGE, index, state: NUD_NOARP | NUD_PERMANENT, flags: NTF_SELF },
    { address: mac, destination: to },
  );
}
