// Which neighbour and forwarding entries exist?
import { FAMILIES, type Ip, renderIp } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { attrs, ip, mac, NLM_F_CREATE, NLM_F_REPLACE, type Request, struct, u8, u16, u32 } from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { AF, messages } from './message.ts';

/** linux/neighbour.h */
const NUD_REACHABLE = 0x02;
const NUD_PROBE = 0x10;
const NUD_NOARP = 0x40;
const NUD_PERMANENT = 0x80;
/** linux/neighbour.h: the entry is the device's own, not that of the bridge it is a port of. */
const NTF_SELF = 0x02;
const REPLACING = NLM_F_CREATE | NLM_F_REPLACE;
const { ENOENT } = Errno;

/** linux/neighbour.h */
export const ndmsg = struct('ndmsg', {
  family: u8,
  _pad1: u8,
  _pad2: u16,
  index: u32,
  state: u16,
  flags: u8,
  type: u8,
});

/** linux/neighbour.h, NDA_* */
const neighbourAttrs = attrs('neighbour', {
  destination: [1, ip],
  address: [2, mac],
  device: [8, u32], // NDA_IFINDEX
  master: [9, u32],
});

export const neighbourMessage = messages('NEIGH', ndmsg, neighbourAttrs);

/** A neighbour entry that does not expire. */
export interface Neighbour {
  readonly index: number;
  readonly ip: Ip;
  readonly mac: string | undefined;
}

/** Permanent neighbours of both families, or those of a device. Same as: `ip neighbour show [dev <device>] nud permanent`, and `ip -6 …` */
export function listPermanentNeighbours(socket: NetlinkSocket, device?: number): Neighbour[] {
  return FAMILIES.flatMap(family => {
    const all = neighbourMessage.list(socket, 'list neighbours', { family: AF[family] }, { device });
    return all.flatMap(({ header: { index, state }, attrs: { destination: ip, address: mac } }) => {
      const isIt = (state & NUD_PERMANENT) !== 0 && (device === undefined || index === device);
      return isIt && ip ? { index, ip, mac } : [];
    });
  });
}

/** Removes an entry, unless it is gone. Same as: `ip neighbour del <ip> dev <device>` */
export function removeNeighbour(socket: NetlinkSocket, { index, ip }: Pick<Neighbour, 'index' | 'ip'>): void {
  tolerating([ENOENT], () => socket.request(removeNeighbourRequest(index, ip)));
}

/** The entry by which the host reaches an address through a device, if there is one. Same as: `ip neighbour get <ip> dev <device>` */
export function findNeighbour(
  socket: NetlinkSocket,
  index: number,
  ip: Ip,
):
  | { readonly mac: string | undefined; readonly isPermanent: boolean; readonly isReachable: boolean }
  | undefined {
  const header = { family: AF[ip.family], index };
  const own = { destination: ip };
  return socket.ask(
    neighbourMessage.question('find neighbour', header, own, [ENOENT], ({ header: { state }, attrs }) => ({
      mac: attrs.address,
      isPermanent: (state & NUD_PERMANENT) !== 0,
      isReachable: (state & NUD_REACHABLE) !== 0,
    })),
  );
}

/**
 * The request that has the kernel ask the neighbour at once whether it still has the address: it is reachable when it has answered.
 * Same as: `ip neighbour replace <ip> lladdr <mac> dev <device> nud probe`
 */
export function probeNeighbourRequest(index: number, address: Ip, mac: string): Request {
  const header = { family: AF[address.family], index, state: NUD_PROBE };
  return neighbourMessage.add(
    `probe ${mac} for ${renderIp(address)}`,
    header,
    { destination: address, address: mac },
    REPLACING,
  );
}

/**
 * Index of the port behind which a bridge has met a hardware address; undefined when it has not, or the port is gone.
 * Same as: `bridge fdb get <mac> br <bridge>`
 */
export function findForwardingPort(socket: NetlinkSocket, bridge: number, mac: string): number | undefined {
  const own = { address: mac, master: bridge };
  const place = { family: AF.bridge };
  return socket.ask(
    neighbourMessage.question('find forwarding entry', place, own, [ENOENT], ({ header }) => header.index),
  );
}

/** The request that sets a permanent neighbour, for a batch. Same as: `ip neighbour replace <ip> lladdr <mac> dev <device> nud permanent` */
export function setNeighbourRequest(index: number, address: Ip, mac: string): Request {
  const op = `set neighbour ${renderIp(address)} to ${mac}`;
  const header = { family: AF[address.family], index, state: NUD_PERMANENT };
  return neighbourMessage.add(op, header, { destination: address, address: mac }, REPLACING);
}

/** The request that removes a neighbour, for a batch; ENOENT if there is none. Same as: `ip neighbour del <ip> dev <device>` */
export function removeNeighbourRequest(index: number, address: Ip): Request {
  const header = { family: AF[address.family], index };
  return neighbourMessage.remove(`delete neighbour ${renderIp(address)}`, header, { destination: address });
}

const FORWARDING = { family: AF.bridge, state: NUD_NOARP | NUD_PERMANENT, flags: NTF_SELF };

/** Where a tunnel sends frames for a hardware address. */
interface Forwarding {
  readonly mac: string;
  readonly to: Ip;
}

/** Forwarding entries of a VXLAN device itself. Same as: `bridge fdb show dev <device>` */
export function listForwarding(socket: NetlinkSocket, index: number): Forwarding[] {
  const all = neighbourMessage.list(socket, 'list forwarding entries', { family: AF.bridge, index });
  return all.flatMap(({ header, attrs: { address, destination } }) =>
    header.index === index && address !== undefined && destination ? { mac: address, to: destination } : [],
  );
}

/** The request that sets the one destination of a hardware address, for a batch. Same as: `bridge fdb replace <mac> dev <device> dst <ip>` */
export function setForwardingRequest(index: number, { mac, to }: Forwarding): Request {
  const op = `set forwarding of ${mac} to ${renderIp(to)}`;
  const own = { address: mac, destination: to };
  return neighbourMessage.add(op, { ...FORWARDING, index }, own, REPLACING);
}

/** The request that removes an entry, for a batch; ENOENT if there is none. Same as: `bridge fdb del <mac> dev <device> dst <ip>` */
export function removeForwardingRequest(index: number, { mac, to }: Forwarding): Request {
  const op = `delete forwarding of ${mac} to ${renderIp(to)}`;
  return neighbourMessage.remove(op, { ...FORWARDING, index }, { address: mac, destination: to });
}
