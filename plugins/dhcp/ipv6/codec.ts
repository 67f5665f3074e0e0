// Which bytes are the messages of DHCPv6 servers and of routers, and what do they say, as far as a pod may believe it?

import {
  type Cidr,
  checksum,
  type Ip,
  ipFromBytes,
  ipToBytes,
  isLinkLocal,
  networkOf,
  parseIp,
} from '../../../src/net/ip.ts';
import { addressesOf as addressesIn, searchOf, textOf } from '../codec.ts';

/** IANA "Dynamic Host Configuration Protocol for IPv6"; RFC 9915 unless another one is named. */
export const Code = {
  clientId: 1,
  serverId: 2,
  iaNa: 3,
  iaAddress: 5,
  optionRequest: 6,
  elapsedTime: 8,
  statusCode: 13,
  rapidCommit: 14,
  /** RFC 3646 */
  nameservers: 23,
  domainSearch: 24,
} as const;

/** Bytes before a value: its code and its length. */
const OPTION_HEADER_BYTES = 4;

/** An option may occur several times, so this is a list. */
export type Options = readonly (readonly [code: number, value: Uint8Array])[];

/** Encodes options in the order given. A value has at most 65535 bytes. */
export function encodeOptions(options: Options): Uint8Array {
  const size = options.reduce((sum, [, value]) => sum + OPTION_HEADER_BYTES + value.length, 0);
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const [code, value] of options) {
    view.setUint16(at, code);
    view.setUint16(at + 2, value.length);
    bytes.set(value, at + OPTION_HEADER_BYTES);
    at += OPTION_HEADER_BYTES + value.length;
  }
  return bytes;
}

/** Reads options; undefined if one of them does not fit into the bytes. */
export function decodeOptions(bytes: Uint8Array): Options | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const options: [number, Uint8Array][] = [];
  for (let at = 0; at < bytes.length; ) {
    if (at + OPTION_HEADER_BYTES > bytes.length) return undefined;
    const end = at + OPTION_HEADER_BYTES + view.getUint16(at + 2);
    if (end > bytes.length) return undefined;
    options.push([view.getUint16(at), bytes.slice(at + OPTION_HEADER_BYTES, end)]);
    at = end;
  }
  return options;
}

export function findOption(options: Options, wanted: number): Uint8Array | undefined {
  return options.find(([code]) => code === wanted)?.[1];
}

/** RFC 9915, section 21.13. */
export const Status = {
  success: 0,
  unspecFail: 1,
  noAddrsAvail: 2,
  noBinding: 3,
  notOnLink: 4,
} as const;

const MEANINGS: Readonly<Record<number, string>> = {
  [Status.unspecFail]: 'it failed without a reason',
  [Status.noAddrsAvail]: 'it has no free address',
  [Status.noBinding]: 'it does not know the lease',
  [Status.notOnLink]: 'the address does not belong on this network',
};

/** What a status says; without the option, all is well. */
interface StatusSaid {
  readonly code: number;
  /** For an error: what the code means, and the server's own words. */
  readonly text: string;
}

/** The status among options of a message, an identity association or an address. A malformed one counts as unspecific failure. */
export function statusIn(options: Options): StatusSaid {
  const value = findOption(options, Code.statusCode);
  if (value === undefined) return { code: Status.success, text: '' };
  const [high = 0, low = Status.unspecFail] = value;
  const code = value.length < 2 ? Status.unspecFail : high * 256 + low;
  const said = textOf(value.subarray(2));
  return { code, text: `${MEANINGS[code] ?? `status ${code}`}${said ? ` ("${said}")` : ''}` };
}

const IP_BYTES = 16;

/** Whether a host can be reached by the address: not unspecified, loopback, IPv4-mapped, of the link alone, or multicast. */
export function isGlobal(ip: Ip): boolean {
  const { value } = ip;
  return (
    ip.family === 6 && value >> 32n !== 0xffffn && value > 1n && value >> 120n !== 0xffn && !isLinkLocal(ip)
  );
}

/** The addresses of a list, as far as a host can be reached by them. */
export function addressesOf(value: Uint8Array | undefined): Ip[] {
  return addressesIn(value, IP_BYTES, isGlobal);
}

// RFC 9915, section 21.4: an identity association for non-temporary addresses (IA_NA) has a number that the client chose, times of
// renewal, and addresses with lifetimes.

/** Number, T1, T2. */
const IDENTITY_HEADER_BYTES = 12;
/** Address, preferred and valid lifetime. */
const IAADDR_BYTES = 24;

/** An address that a server grants. Lifetimes are in seconds, 0xffffffff for ever. */
export interface GrantedAddress {
  readonly ip: Ip;
  readonly preferred: number;
  readonly valid: number;
  readonly status: StatusSaid;
}

/** What a server says about a client's addresses. Times are in seconds, 0 where it leaves them to the client. */
export interface Association {
  readonly renewAfter: number;
  readonly rebindAfter: number;
  readonly addresses: readonly GrantedAddress[];
  readonly status: StatusSaid;
}

/** The value of the option in a client's message. @param iaid 4 bytes */
export function encodeAssociation(iaid: Uint8Array, addresses: readonly Ip[]): Uint8Array {
  const options = addresses.map(ip => {
    const value = new Uint8Array(IAADDR_BYTES);
    value.set(ipToBytes(ip));
    return [Code.iaAddress, value] as const;
  });
  const tail = encodeOptions(options);
  const bytes = new Uint8Array(IDENTITY_HEADER_BYTES + tail.length);
  bytes.set(iaid);
  bytes.set(tail, IDENTITY_HEADER_BYTES);
  return bytes;
}

/** The client's association in a server's message; undefined if it is missing or malformed. @param iaid 4 bytes */
export function findAssociation(options: Options, iaid: Uint8Array): Association | undefined {
  for (const [code, value] of options) {
    if (code !== Code.iaNa || value.length < IDENTITY_HEADER_BYTES) continue;
    if (Buffer.compare(value.subarray(0, 4), iaid) !== 0) continue;
    const own = decodeOptions(value.subarray(IDENTITY_HEADER_BYTES));
    if (own === undefined) continue;
    const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
    return {
      renewAfter: view.getUint32(4),
      rebindAfter: view.getUint32(8),
      addresses: own.flatMap(([inner, address]) =>
        inner === Code.iaAddress ? (addressOf(address) ?? []) : [],
      ),
      status: statusIn(own),
    };
  }
  return undefined;
}

function addressOf(value: Uint8Array): GrantedAddress | undefined {
  const options = value.length < IAADDR_BYTES ? undefined : decodeOptions(value.subarray(IAADDR_BYTES));
  if (options === undefined) return undefined;
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  return {
    ip: ipFromBytes(value.subarray(0, 16)),
    preferred: view.getUint32(16),
    valid: view.getUint32(20),
    status: statusIn(options),
  };
}

// RFC 9915, section 8: type, transaction, options. Messages of servers are untrusted: any bytes yield a message or undefined,
// never an exception.

/** RFC 9915, section 7.3. */
export const MessageType = {
  solicit: 1,
  advertise: 2,
  request: 3,
  renew: 5,
  rebind: 6,
  reply: 7,
  release: 8,
  decline: 9,
  informationRequest: 11,
} as const;

const MESSAGE_HEADER_BYTES = 4;
/** A transaction is a number of 24 bits. */
export const TRANSACTIONS = 0x1000000;

export interface Message {
  readonly type: number;
  readonly transaction: number;
  readonly options: Options;
}

export function encodeMessage({ type, transaction, options }: Message): Uint8Array {
  const tail = encodeOptions(options);
  const bytes = new Uint8Array(MESSAGE_HEADER_BYTES + tail.length);
  new DataView(bytes.buffer).setUint32(0, type * TRANSACTIONS + (transaction % TRANSACTIONS));
  bytes.set(tail, MESSAGE_HEADER_BYTES);
  return bytes;
}

/** Decodes a server's message; undefined for anything else, and for another transaction if one is given. */
export function decodeMessage(bytes: Uint8Array, asked?: number): Message | undefined {
  if (bytes.length < MESSAGE_HEADER_BYTES) return undefined;
  const head = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0);
  const type = Math.floor(head / TRANSACTIONS);
  if (type !== MessageType.advertise && type !== MessageType.reply) return undefined;
  const transaction = head % TRANSACTIONS;
  if (asked !== undefined && asked !== transaction) return undefined;
  const options = decodeOptions(bytes.subarray(MESSAGE_HEADER_BYTES));
  return options && { type, transaction, options };
}

// RFC 4861, sections 4.1 and 4.2; RFC 8106 for resolvers. Whole IPv6 packets. Any bytes yield an advertisement or undefined.

const IPV6_HEADER_BYTES = 40;
const ICMPV6 = 58;
/** Only a neighbour can send a packet that arrives with it. */
const HOP_LIMIT = 255;
const ROUTER_SOLICITATION = 133;
export const ROUTER_ADVERTISEMENT = 134;
const ALL_ROUTERS = parseIp('ff02::2');
/** Bytes of an advertisement before its options. */
const FIXED_BYTES = 16;
const SOURCE_LINK_ADDRESS = 1;
const PREFIX_INFORMATION = 3;
const RESOLVERS = 25;
const SEARCH_LIST = 31;
const MAX_PREFIXES = 16;
const MANAGED = 0x80;
const ON_LINK = 0x80;
const AUTONOMOUS = 0x40;

interface AdvertisedPrefix {
  readonly cidr: Cidr;
  /** Addresses in it are on the link. */
  readonly onLink: boolean;
  /** Hosts form addresses in it. */
  readonly autonomous: boolean;
}

/** What a router says about the link. */
export interface Advertisement {
  /** The router's address, which is of the link alone. */
  readonly router: Ip;
  /** Whether it routes for others. */
  readonly isDefault: boolean;
  /** Addresses are to be had by DHCPv6. */
  readonly managed: boolean;
  readonly prefixes: readonly AdvertisedPrefix[];
  readonly nameservers: readonly Ip[];
  readonly search: readonly string[];
}

interface Sender {
  /** Of the link alone. */
  readonly address: Ip;
  /** 6 bytes. */
  readonly mac: Uint8Array;
}

/** Encodes the question for advertisements. @param sender undefined for a host that has no address yet */
export function encodeSolicitation(sender?: Sender): Uint8Array {
  const bytes = new Uint8Array(IPV6_HEADER_BYTES + 8 + (sender ? 8 : 0));
  bytes.set([0x60, 0, 0, 0, 0, bytes.length - IPV6_HEADER_BYTES, ICMPV6, HOP_LIMIT]);
  bytes.set(ipToBytes(ALL_ROUTERS), 24);
  if (sender) {
    bytes.set(ipToBytes(sender.address), 8);
    bytes.set([SOURCE_LINK_ADDRESS, 1, ...sender.mac], IPV6_HEADER_BYTES + 8);
  }
  bytes[IPV6_HEADER_BYTES] = ROUTER_SOLICITATION;
  // RFC 8200, section 8.1
  const pseudo = Uint8Array.of(...bytes.subarray(8), 0, ICMPV6, 0, bytes.length - IPV6_HEADER_BYTES);
  new DataView(bytes.buffer).setUint16(IPV6_HEADER_BYTES + 2, checksum(pseudo));
  return bytes;
}

/** Decodes a packet. The checksum is not verified: a packet that never leaves the machine carries an unfinished one. */
export function decodeAdvertisement(packet: Uint8Array): Advertisement | undefined {
  if (packet.length < IPV6_HEADER_BYTES + FIXED_BYTES || (packet[0] ?? 0) >> 4 !== 6) return undefined;
  if (packet[6] !== ICMPV6 || packet[7] !== HOP_LIMIT) return undefined;
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  const end = IPV6_HEADER_BYTES + view.getUint16(4);
  const router = ipFromBytes(packet.subarray(8, 24));
  const body = packet.subarray(IPV6_HEADER_BYTES, end);
  if (end > packet.length || body.length < FIXED_BYTES || !isLinkLocal(router)) return undefined;
  if (body[0] !== ROUTER_ADVERTISEMENT || body[1] !== 0) return undefined;
  const options = optionsOf(body.subarray(FIXED_BYTES));
  const valuesOf = (type: number) => options?.filter(one => one[0] === type) ?? [];
  return (
    options && {
      router,
      isDefault: view.getUint16(IPV6_HEADER_BYTES + 6) > 0,
      managed: ((body[5] ?? 0) & MANAGED) !== 0,
      prefixes: valuesOf(PREFIX_INFORMATION).flatMap(prefixOf).slice(0, MAX_PREFIXES),
      nameservers: addressesOf(joined(valuesOf(RESOLVERS).filter(isInForce))),
      search: searchOf(joined(valuesOf(SEARCH_LIST).filter(isInForce))),
    }
  );
}

/** Options with their headers; undefined if one does not fit. Lengths count units of eight bytes. */
function optionsOf(bytes: Uint8Array): Uint8Array[] | undefined {
  const options: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = (bytes[at + 1] ?? 0) * 8;
    if (length === 0 || at + length > bytes.length) return undefined;
    options.push(bytes.subarray(at, at + length));
    at += length;
  }
  return options;
}

function prefixOf(option: Uint8Array): AdvertisedPrefix[] {
  const [, , prefix = 0, flags = 0] = option;
  if (option.length !== 32 || prefix > 128) return [];
  const cidr = { ip: ipFromBytes(option.subarray(16, 32)), prefix };
  const isValid = new DataView(option.buffer, option.byteOffset, option.byteLength).getUint32(4) > 0;
  if (!isValid || !isGlobal(cidr.ip)) return [];
  const own = { ip: networkOf(cidr), prefix };
  return [{ cidr: own, onLink: (flags & ON_LINK) !== 0, autonomous: (flags & AUTONOMOUS) !== 0 }];
}

/** A lifetime of zero withdraws what the option names. */
function isInForce(option: Uint8Array): boolean {
  return option.subarray(4, 8).some(Boolean);
}

/** The values of several options of one kind, after reserved bytes and lifetime. */
function joined(options: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(options.flatMap(option => [...option.subarray(8)]));
}
