// What does a router advertise, as far as a pod may believe it?
//
// RFC 4861, sections 4.1 and 4.2; RFC 8106 for resolvers. Whole IPv6 packets. Any bytes yield an advertisement or undefined.
import { type Cidr, type Ip, ipFromBytes, ipToBytes, networkOf, parseIp } from '../../../../src/net/ip.ts';
import { searchOf } from '../../codec/values.ts';
import { addressesOf, isGlobal, isLinkLocal } from './options.ts';

const IP_BYTES = 40;
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

/** A prefix of the link. */
export interface AdvertisedPrefix {
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

/** Who asks. */
export interface Sender {
  /** Of the link alone. */
  readonly address: Ip;
  /** 6 bytes. */
  readonly mac: Uint8Array;
}

/** Encodes the question for advertisements. @param sender undefined for a host that has no address yet */
export function encodeSolicitation(sender?: Sender): Uint8Array {
  const bytes = new Uint8Array(IP_BYTES + 8 + (sender ? 8 : 0));
  bytes.set([0x60, 0, 0, 0, 0, bytes.length - IP_BYTES, ICMPV6, HOP_LIMIT]);
  bytes.set(ipToBytes(ALL_ROUTERS), 24);
  if (sender) {
    bytes.set(ipToBytes(sender.address), 8);
    bytes.set([SOURCE_LINK_ADDRESS, 1, ...sender.mac], IP_BYTES + 8);
  }
  bytes[IP_BYTES] = ROUTER_SOLICITATION;
  new DataView(bytes.buffer).setUint16(IP_BYTES + 2, checksum(bytes));
  return bytes;
}

/** Decodes a packet. The checksum is not verified: a packet that never leaves the machine carries an unfinished one. */
export function decodeAdvertisement(packet: Uint8Array): Advertisement | undefined {
  if (packet.length < IP_BYTES + FIXED_BYTES || (packet[0] ?? 0) >> 4 !== 6) return undefined;
  if (packet[6] !== ICMPV6 || packet[7] !== HOP_LIMIT) return undefined;
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  const end = IP_BYTES + view.getUint16(4);
  const router = ipFromBytes(packet.subarray(8, 24));
  const body = packet.subarray(IP_BYTES, end);
  if (end > packet.length || body.length < FIXED_BYTES || !isLinkLocal(router)) return undefined;
  if (body[0] !== ROUTER_ADVERTISEMENT || body[1] !== 0) return undefined;
  const options = optionsOf(body.subarray(FIXED_BYTES));
  const valuesOf = (type: number) => options?.filter(one => one[0] === type) ?? [];
  return (
    options && {
      router,
      isDefault: view.getUint16(IP_BYTES + 6) > 0,
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

/** RFC 8200, section 8.1, with the sum of the pseudo header. */
function checksum(packet: Uint8Array): number {
  let sum = ICMPV6 + packet.length - IP_BYTES;
  for (let at = 8; at < packet.length; at += 2) sum += ((packet[at] ?? 0) << 8) | (packet[at + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}
