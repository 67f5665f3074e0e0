// How are addresses added to interfaces, listed and removed, and to which multicast groups does one listen?

import { type Cidr, type Ip, lastOf, renderCidr, sameIp } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { attrs, ip, NLM_F_CREATE, NLM_F_REPLACE, type Request, s32, str, struct, u8, u32 } from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { AF, messages } from './message.ts';

/** linux/if_addr.h: the kernel's own link-local address (Linux 5.18). */
export const IFAPROT_KERNEL_LL = 3;

/** linux/if_addr.h, IFA_F_* */
export const IFA_F_TEMPORARY = 0x01;
export const IFA_F_NODAD = 0x02;
export const IFA_F_DADFAILED = 0x08;
export const IFA_F_DEPRECATED = 0x20;
export const IFA_F_TENTATIVE = 0x40;
export const IFA_F_PERMANENT = 0x80;
/** Flags that a program chooses: NODAD, HOMEADDRESS, MANAGETEMPADDR, NOPREFIXROUTE, MCAUTOJOIN. The others are states. */
const CHOSEN_FLAGS = 0x02 | 0x10 | 0x100 | 0x200 | 0x400;
const FOREVER = 0xffffffff;

/** linux/rtnetlink.h, enum rt_scope_t */
export const RT_SCOPE_UNIVERSE = 0;
export const RT_SCOPE_LINK = 253;
export const RT_SCOPE_HOST = 254;

/** linux/if_addr.h */
export const ifaddrmsg = struct('ifaddrmsg', { family: u8, prefix: u8, flags: u8, scope: u8, index: u32 });

/** linux/if_addr.h */
const ifaCacheinfo = struct('ifa_cacheinfo', { preferred: u32, valid: u32, created: u32, updated: u32 });

/** linux/if_addr.h, IFA_* */
const addrAttrs = attrs('address', {
  address: [1, ip],
  local: [2, ip],
  label: [3, str],
  broadcast: [4, ip],
  lifetimes: [6, ifaCacheinfo],
  flags: [8, u32],
  priority: [9, u32], // IFA_RT_PRIORITY
  targetNetnsId: [10, s32],
  protocol: [11, u8],
});

export const addrMessage = messages('ADDR', ifaddrmsg, addrAttrs);

export interface Address {
  readonly index: number;
  readonly cidr: Cidr;
  readonly flags: number;
  readonly scope: number;
  readonly broadcast?: Ip | undefined;
  readonly label?: string | undefined;
  /** The other end of a point-to-point link, in place of a subnet. */
  readonly peer?: Ip | undefined;
  /** Metric of the route to the subnet. */
  readonly priority?: number | undefined;
  /** Origin, IFAPROT_*; 0 or absent for programs. */
  readonly protocol?: number | undefined;
}

/** Addresses of the namespace, or of one interface. Same as: `ip addr show [dev <link>]` */
export function listAddresses(socket: NetlinkSocket, index?: number): Address[] {
  return listAddressMessages(socket, index)
    .map(decodeAddress)
    .filter(address => index === undefined || address.index === index);
}

/**
 * The kernel's own messages of addresses, for {@link decodeAddress}: what a record keeps of them. An older kernel, without strict
 * mode, sends those of other interfaces as well.
 */
export function listAddressMessages(socket: NetlinkSocket, index?: number): Uint8Array[] {
  return socket.dump(addrMessage.get('list addresses', index === undefined ? {} : { index }));
}

/**
 * Addresses of one interface of another namespace, given the id of that namespace in the socket's namespace (Linux 4.20).
 * Undefined when they cannot be read.
 * Same as: `ip -n <namespace> addr show dev <link>`
 */
export function findAddressesOf(
  socket: NetlinkSocket,
  netnsId: number,
  index: number,
): Address[] | undefined {
  const op = 'list addresses of another namespace';
  try {
    const all = addrMessage.list(socket, op, { index }, { targetNetnsId: netnsId });
    // A kernel that does not know the attribute lists its own namespace.
    if (all.some(({ attrs }) => attrs.targetNetnsId !== netnsId)) return undefined;
    return all.map(toAddress).filter(address => address.index === index);
  } catch {
    return undefined;
  }
}

/**
 * Adds an address to an interface; EEXIST when it exists already.
 * @param options `nodad`: use an IPv6 address at once, when a duplicate cannot exist
 * Same as: `ip addr add <cidr> dev <link> [nodad]`
 */
export function addAddress(
  socket: NetlinkSocket,
  index: number,
  cidr: Cidr,
  options: { nodad?: boolean } = {},
): void {
  socket.request(addAddressRequest(index, cidr, options));
}

export function addAddressRequest(
  index: number,
  cidr: Cidr,
  { nodad = false }: { nodad?: boolean } = {},
): Request {
  return additionOf(plainAddress(index, cidr, nodad && cidr.ip.family === 6 ? IFA_F_NODAD : 0));
}

/** How long an address lasts, in seconds from now; 0xffffffff for ever. */
interface Lifetimes {
  readonly preferred: number;
  readonly valid: number;
}

/**
 * Gives an address of an interface lifetimes, after which the kernel removes it; adds the address if it is missing.
 * Same as: `ip addr replace <cidr> dev <link> preferred_lft <s> valid_lft <s>`
 */
export function limitAddress(socket: NetlinkSocket, index: number, cidr: Cidr, lifetimes: Lifetimes): void {
  const op = `limit address ${renderCidr(cidr)} of link with index ${index}`;
  const address = plainAddress(index, cidr, 0);
  const flags = NLM_F_CREATE | NLM_F_REPLACE;
  socket.request(addrMessage.add(op, ...messageOf(address, lifetimes), flags));
}

/** Restores a listed address on its interface; EEXIST when it exists already. */
export function restoreAddress(socket: NetlinkSocket, address: Address): void {
  socket.request(restoreAddressRequest(address));
}

export function restoreAddressRequest(address: Address): Request {
  const isDeprecated = (address.flags & IFA_F_DEPRECATED) !== 0;
  return additionOf(
    { ...address, flags: address.flags & CHOSEN_FLAGS },
    isDeprecated ? { preferred: 0, valid: FOREVER } : undefined,
  );
}

/** Removes an address from an interface; a missing one is ignored. Same as: `ip addr del <cidr> dev <link>` */
export function removeAddress(socket: NetlinkSocket, index: number, cidr: Cidr): void {
  tolerating([Errno.EADDRNOTAVAIL, Errno.ENODEV], () => socket.request(removeAddressRequest(index, cidr)));
}

/** The request of {@link removeAddress}, for a batch; EADDRNOTAVAIL for a missing one. */
export function removeAddressRequest(index: number, cidr: Cidr): Request {
  const op = `delete address ${renderCidr(cidr)} from link with index ${index}`;
  return addrMessage.remove(op, ...messageOf(plainAddress(index, cidr, 0)));
}

/** Sets the subnet's broadcast address, if the subnet has one. */
function plainAddress(index: number, cidr: Cidr, flags: number): Address {
  const broadcast = cidr.ip.family === 4 && cidr.prefix < 31 ? lastOf(cidr) : undefined;
  return { index, cidr, flags, scope: RT_SCOPE_UNIVERSE, broadcast };
}

function additionOf(address: Address, lifetimes?: Lifetimes): Request {
  const op = `add address ${renderCidr(address.cidr)} to link with index ${address.index}`;
  return addrMessage.add(op, ...messageOf(address, lifetimes));
}

function messageOf(
  { index, cidr, flags, scope, broadcast, label, peer, priority, protocol }: Address,
  lifetimes?: Lifetimes,
): Parameters<typeof addrMessage.encode> {
  const { ip: address, prefix } = cidr;
  return [
    { family: AF[address.family], prefix, flags: flags & 0xff, scope, index },
    {
      local: address,
      address: peer ?? address,
      flags: flags > 0xff ? flags : undefined,
      priority: priority || undefined,
      protocol: protocol || undefined,
      broadcast,
      label: label || undefined,
      lifetimes: lifetimes && { ...ifaCacheinfo.zero, ...lifetimes },
    },
  ];
}

/** Reads a message of {@link listAddressMessages}. */
export function decodeAddress(body: Uint8Array): Address {
  return toAddress(addrMessage.decode(body));
}

function toAddress({ header, attrs: own }: ReturnType<typeof addrMessage.decode>): Address {
  // IPv4 point-to-point links carry the peer in IFA_ADDRESS and the interface's own address in IFA_LOCAL.
  const address = own.local ?? own.address;
  if (address === undefined)
    throw new Error('Cannot decode address: it has neither IFA_LOCAL nor IFA_ADDRESS');
  return {
    index: header.index,
    cidr: { ip: address, prefix: header.prefix },
    flags: own.flags ?? header.flags,
    scope: header.scope,
    ...(own.broadcast ? { broadcast: own.broadcast } : {}),
    ...(own.label ? { label: own.label } : {}),
    ...(own.local && own.address && !sameIp(own.local, own.address) ? { peer: own.address } : {}),
    ...(own.priority ? { priority: own.priority } : {}),
    ...(own.protocol ? { protocol: own.protocol } : {}),
  };
}

/** RTM_GETMULTICAST, request and reply; linux/if_addr.h, IFA_MULTICAST. */
const multicastAttrs = attrs('multicast address', { multicast: [7, ip] });
const multicastMessage = messages('MULTICAST', ifaddrmsg, multicastAttrs);

/** IPv6 groups of an interface. Same as: `ip -6 maddr show dev <link>` */
export function listIpv6Groups(socket: NetlinkSocket, index: number): Ip[] {
  const all = multicastMessage.list(socket, 'list multicast groups', { family: AF[6], index });
  // An old kernel lists the groups of all interfaces.
  return all.flatMap(({ header, attrs }) => (header.index === index ? (attrs.multicast ?? []) : []));
}
