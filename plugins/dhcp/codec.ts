// Which bytes is a DHCP message, and what do the values of its options say, as far as a pod may believe them?

import { type Cidr, checksum, type Ip, ipFromBytes, networkOf } from '../../src/net/ip.ts';

/** IANA "BOOTP Vendor Extensions and DHCP Options"; RFC 2132 unless another one is named. */
export const Code = {
  pad: 0,
  subnetMask: 1,
  routers: 3,
  nameservers: 6,
  hostName: 12,
  domainName: 15,
  interfaceMtu: 26,
  staticRoutes: 33,
  requestedAddress: 50,
  leaseTime: 51,
  overload: 52,
  messageType: 53,
  serverId: 54,
  parameterList: 55,
  message: 56,
  maxMessageSize: 57,
  renewalTime: 58,
  rebindingTime: 59,
  vendorClass: 60,
  clientId: 61,
  userClass: 77,
  /** RFC 3397 */
  domainSearch: 119,
  /** RFC 3442 */
  classlessRoutes: 121,
  end: 255,
} as const;

/** Longest value of one option; a longer one is split into several of the same code (RFC 3396). */
const MAX_VALUE = 255;

export type Options = ReadonlyMap<number, Uint8Array>;

/** Encodes options in the order given, with the end mark. */
function encodeOptions(options: Options): Uint8Array {
  const bytes: number[] = [];
  for (const [code, value] of options) {
    for (let at = 0; at === 0 || at < value.length; at += MAX_VALUE) {
      const part = value.subarray(at, at + MAX_VALUE);
      bytes.push(code, part.length, ...part);
    }
  }
  return Uint8Array.from([...bytes, Code.end]);
}

/**
 * Reads options up to the end mark. Several of the same code are concatenated (RFC 3396). An option that does not fit into the
 * area ends it: what came before is kept.
 */
export function decodeOptions(areas: readonly Uint8Array[]): Map<number, Uint8Array> {
  const pieces = new Map<number, Uint8Array[]>();
  for (const area of areas) {
    for (let at = 0; at < area.length; ) {
      const code = area[at] ?? Code.end;
      if (code === Code.end) break;
      if (code === Code.pad) {
        at += 1;
        continue;
      }
      const length = area[at + 1];
      if (length === undefined || at + 2 + length > area.length) break;
      const part = area.subarray(at + 2, at + 2 + length);
      const before = pieces.get(code);
      if (before) before.push(part);
      else pieces.set(code, [part]);
      at += 2 + length;
    }
  }
  // Joined once: an option in thousands of pieces must not be copied for each of them.
  return new Map(Array.from(pieces, ([code, parts]) => [code, new Uint8Array(Buffer.concat(parts))]));
}

// A server is any host that answers first. Each function returns only what is well formed and within its bounds.

/** More would not fit into the messages of common servers; a rogue one could fill the pod's routing table. */
const MAX_ROUTES = 64;
const MAX_NAMESERVERS = 8;
const MAX_SEARCH = 16;
/** Pointers make a long name of two bytes. */
const MAX_NAMES_READ = 4 * MAX_SEARCH;
/** RFC 1035, section 2.3.4 */
const MAX_NAME = 253;
const MAX_LABEL = 63;

/** A route of options 33 and 121. Without a gateway, the destination is on the link. */
export interface ServedRoute {
  readonly dst: Cidr;
  readonly gateway: Ip | undefined;
}

/** A 32-bit number; undefined if the value has another length. */
export function numberOf(value: Uint8Array | undefined): number | undefined {
  if (value?.length !== 4 && value?.length !== 2) return undefined;
  return value.reduce((number, byte) => number * 256 + byte, 0);
}

/**
 * The addresses of a list that a host can have.
 * @param bytes of one address
 * @param isPossible whether a host can have it
 */
export function addressesOf(value: Uint8Array | undefined, bytes = 4, isPossible = isHost): Ip[] {
  const found: Ip[] = [];
  for (let at = 0; value && at + bytes <= value.length && found.length < MAX_NAMESERVERS; at += bytes) {
    const ip = ipFromBytes(value.subarray(at, at + bytes));
    if (isPossible(ip)) found.push(ip);
  }
  return found;
}

/** The prefix length of a subnet mask; undefined if its ones are not contiguous, or it is empty. */
export function prefixOf(value: Uint8Array | undefined): number | undefined {
  if (value?.length !== 4) return undefined;
  const mask = numberOf(value) ?? 0;
  const ones = Math.clz32(~mask);
  const expected = ones === 0 ? 0 : (-1 << (32 - ones)) >>> 0;
  return ones > 0 && expected === mask ? ones : undefined;
}

/** Option 121: prefix length, significant bytes of the destination, gateway (RFC 3442). Undefined if it is malformed. */
export function classlessRoutesOf(value: Uint8Array | undefined): ServedRoute[] | undefined {
  if (value === undefined) return undefined;
  const routes: ServedRoute[] = [];
  for (let at = 0; at < value.length; ) {
    const prefix = value[at] ?? 33;
    const significant = Math.ceil(prefix / 8);
    const end = at + 1 + significant + 4;
    if (prefix > 32 || end > value.length) return undefined;
    const destination = new Uint8Array(4);
    destination.set(value.subarray(at + 1, at + 1 + significant));
    routes.push(routeOf({ ip: ipFromBytes(destination), prefix }, value.subarray(end - 4, end)));
    at = end;
  }
  return routes.filter(isUsable).slice(0, MAX_ROUTES);
}

/** Option 33: destination and gateway; the length of the prefix follows from the class of the address. */
export function staticRoutesOf(value: Uint8Array | undefined): ServedRoute[] {
  const routes: ServedRoute[] = [];
  for (let at = 0; value && at + 8 <= value.length; at += 8) {
    const first = value[at] ?? 0;
    const prefix = first < 128 ? 8 : first < 192 ? 16 : 24;
    const destination = { ip: ipFromBytes(value.subarray(at, at + 4)), prefix };
    // The default route is illegal here (RFC 2132, 5.8).
    if (first !== 0) routes.push(routeOf(destination, value.subarray(at + 4, at + 8)));
  }
  return routes.filter(isUsable).slice(0, MAX_ROUTES);
}

/** A domain name; undefined for text that is not one, which must not get into a pod's resolv.conf. */
export function nameOf(value: Uint8Array | undefined): string | undefined {
  if (value === undefined || value.length > MAX_NAME + 2) return undefined;
  const text = new TextDecoder('latin1').decode(value).replace(/\0+$/, '').replace(/\.$/, '');
  return isName(text) ? text : undefined;
}

/** Option 119: domain names in the compressed form of RFC 1035, section 4.1.4. Names that are not valid are left out. */
export function searchOf(value: Uint8Array | undefined): string[] {
  if (value === undefined) return [];
  const names: string[] = [];
  for (
    let at = 0, left = MAX_NAMES_READ;
    at < value.length && names.length < MAX_SEARCH && left > 0;
    left--
  ) {
    const read = readName(value, at);
    if (read === undefined) break;
    if (isName(read.name)) names.push(read.name);
    at = read.end;
  }
  return names;
}

/** Text for a log line: printable ASCII, cut. */
export function textOf(value: Uint8Array | undefined): string {
  const text = new TextDecoder('latin1').decode(value?.subarray(0, 200));
  return text.replaceAll(/[^\x20-\x7e]/g, '?');
}

/** Whether an interface can have the address: not in 0/8, 127/8, nor multicast or reserved. */
export function isHost({ value }: Ip): boolean {
  const first = Number(value >> 24n);
  return first !== 0 && first !== 127 && first < 224;
}

function routeOf(dst: Cidr, gateway: Uint8Array): ServedRoute {
  const ip = ipFromBytes(gateway);
  return { dst: { ip: networkOf(dst), prefix: dst.prefix }, gateway: ip.value === 0n ? undefined : ip };
}

/** A route must not redirect the pod's own loopback, nor multicast, nor lead to a gateway that cannot exist. */
function isUsable({ dst, gateway }: ServedRoute): boolean {
  const first = Number(dst.ip.value >> 24n);
  const isDefault = dst.prefix === 0;
  const isLoopback = first === 127 || (first === 0 && !isDefault && dst.prefix >= 8);
  return !isLoopback && first < 224 && (gateway === undefined || isHost(gateway));
}

function isName(text: string): boolean {
  return (
    text.length > 0 &&
    text.length <= MAX_NAME &&
    text
      .split('.')
      .every(
        label =>
          label.length > 0 && label.length <= MAX_LABEL && /^[a-z\d_]([a-z\d_-]*[a-z\d_])?$/i.test(label),
      )
  );
}

/** @returns the name, and where the next one begins; undefined for bytes that are none */
function readName(value: Uint8Array, start: number): { name: string; end: number } | undefined {
  const labels: string[] = [];
  let end: number | undefined;
  // A pointer leads backwards only, so this ends.
  for (let at = start, floor = start; ; ) {
    const length = value[at];
    if (length === undefined || labels.length > MAX_NAME / 2) return undefined;
    if (length === 0) return { name: labels.join('.'), end: end ?? at + 1 };
    if (length >= 0xc0) {
      const target = ((length & 0x3f) << 8) | (value[at + 1] ?? 0);
      if (at + 1 >= value.length || target >= floor) return undefined;
      end ??= at + 2;
      at = target;
      floor = target;
      continue;
    }
    if (length > MAX_LABEL || at + 1 + length > value.length) return undefined;
    labels.push(new TextDecoder('latin1').decode(value.subarray(at + 1, at + 1 + length)));
    at += 1 + length;
  }
}

// RFC 2131, section 2: the fixed fields of BOOTP, the magic cookie, then options. Messages of servers are untrusted: any bytes
// yield a message or undefined, never an exception.

/** RFC 2131, option 53. */
export const MessageType = {
  discover: 1,
  offer: 2,
  request: 3,
  decline: 4,
  ack: 5,
  nak: 6,
  release: 7,
  inform: 8,
} as const;

const BOOTREQUEST = 1;
const BOOTREPLY = 2;
const ETHERNET = 1;
const MAC_BYTES = 6;
const BROADCAST_FLAG = 0x8000;
const COOKIE = 0x63825363;

/** Offsets of the fixed fields. */
const AT = { xid: 4, secs: 8, flags: 10, ciaddr: 12, yiaddr: 16, chaddr: 28, sname: 44, file: 108 } as const;
const COOKIE_AT = 236;
const OPTIONS_AT = 240;
/** A server may expect no less (RFC 1542, section 2.1). */
const MIN_BYTES = 300;

/** The largest message that the client says it accepts; a server must not send more. */
export const MAX_MESSAGE_BYTES = 1472;

/** What tells an answer to a client from all else on the link. */
type Asked = Pick<ServerMessage, 'xid' | 'mac'>;

/** What a client sends. Addresses are 4 bytes. */
export interface ClientMessage {
  readonly xid: number;
  /** Seconds since the client began. */
  readonly secs: number;
  /** The client cannot receive unicast until it has an address. */
  readonly broadcast: boolean;
  /** The client's address, if the interface has it; zeros otherwise. */
  readonly ciaddr: Uint8Array;
  readonly mac: Uint8Array;
  readonly options: Options;
}

export interface ServerMessage {
  readonly xid: number;
  readonly mac: Uint8Array;
  /** The address for the client; zeros in a NAK. */
  readonly yiaddr: Uint8Array;
  readonly type: number;
  readonly options: Options;
}

export function encodeMessage({ xid, secs, broadcast, ciaddr, mac, options }: ClientMessage): Uint8Array {
  const tail = encodeOptions(options);
  const bytes = new Uint8Array(Math.max(MIN_BYTES, OPTIONS_AT + tail.length));
  const view = new DataView(bytes.buffer);
  bytes.set([BOOTREQUEST, ETHERNET, MAC_BYTES, 0]);
  view.setUint32(AT.xid, xid);
  view.setUint16(AT.secs, Math.min(secs, 0xffff));
  view.setUint16(AT.flags, broadcast ? BROADCAST_FLAG : 0);
  bytes.set(ciaddr, AT.ciaddr);
  bytes.set(mac.subarray(0, MAC_BYTES), AT.chaddr);
  view.setUint32(COOKIE_AT, COOKIE);
  bytes.set(tail, OPTIONS_AT);
  return bytes;
}

/**
 * Decodes a server's message; undefined for anything else, and for what is not for this client: every host of the link can make it
 * look, so it looks at the options last.
 */
export function decodeMessage(bytes: Uint8Array, asked?: Asked): ServerMessage | undefined {
  if (bytes.length < OPTIONS_AT || bytes.length > MAX_MESSAGE_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes[0] !== BOOTREPLY || bytes[1] !== ETHERNET || bytes[2] !== MAC_BYTES) return undefined;
  if (view.getUint32(COOKIE_AT) !== COOKIE) return undefined;
  const xid = view.getUint32(AT.xid);
  const mac = bytes.slice(AT.chaddr, AT.chaddr + MAC_BYTES);
  if (asked && (asked.xid !== xid || Buffer.compare(asked.mac, mac) !== 0)) return undefined;
  const options = optionsOf(bytes);
  const [type] = options.get(Code.messageType) ?? [];
  if (type === undefined) return undefined;
  return {
    xid,
    mac,
    yiaddr: bytes.slice(AT.yiaddr, AT.yiaddr + 4),
    type,
    options,
  };
}

/** Option 52 says which of the fields "file" and "sname" hold options as well, in that order (RFC 3396, section 5). */
function optionsOf(bytes: Uint8Array): Options {
  const area = bytes.subarray(OPTIONS_AT);
  const options = decodeOptions([area]);
  const [overload = 0] = options.get(Code.overload) ?? [];
  if (overload < 1 || overload > 3) return options;
  return decodeOptions([
    area,
    ...(overload & 1 ? [bytes.subarray(AT.file, COOKIE_AT)] : []),
    ...(overload & 2 ? [bytes.subarray(AT.sname, AT.file)] : []),
  ]);
}

// RFC 791 and 768: a client without an address has no socket of the kernel's, and makes its datagrams.

const IP_HEADER_BYTES = 20;
const UDP_BYTES = 8;
const UDP = 17;
const TTL = 64;

/** One end: an address of 4 bytes, and a port. */
interface Endpoint {
  readonly address: Uint8Array;
  readonly port: number;
}

/** Encodes an unfragmented datagram, with both checksums. */
export function encodeDatagram(from: Endpoint, to: Endpoint, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(IP_HEADER_BYTES + UDP_BYTES + payload.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = 0x45;
  view.setUint16(2, bytes.length);
  bytes[8] = TTL;
  bytes[9] = UDP;
  bytes.set(from.address, 12);
  bytes.set(to.address, 16);
  view.setUint16(10, checksum(bytes.subarray(0, IP_HEADER_BYTES)));
  view.setUint16(20, from.port);
  view.setUint16(22, to.port);
  view.setUint16(24, UDP_BYTES + payload.length);
  bytes.set(payload, IP_HEADER_BYTES + UDP_BYTES);
  const pseudo = Uint8Array.from([...bytes.subarray(12, 20), 0, UDP, ...bytes.subarray(24, 26)]);
  const sum = checksum(Uint8Array.from([...pseudo, ...bytes.subarray(IP_HEADER_BYTES)]));
  // 0 would mean that there is no checksum (RFC 768).
  view.setUint16(26, sum || 0xffff);
  return bytes;
}

/**
 * The payload of a datagram from and to these ports; undefined for anything else. The checksum is not verified: a packet that
 * never leaves the machine carries an unfinished one.
 */
export function decodeDatagram(packet: Uint8Array, fromPort: number, toPort: number): Uint8Array | undefined {
  if (packet.length < IP_HEADER_BYTES || (packet[0] ?? 0) >> 4 !== 4) return undefined;
  const header = ((packet[0] ?? 0) & 0x0f) * 4;
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  const total = view.getUint16(2);
  const isWhole = (view.getUint16(6) & 0x3fff) === 0;
  if (header < IP_HEADER_BYTES || total > packet.length || total < header + UDP_BYTES || !isWhole)
    return undefined;
  if (packet[9] !== UDP) return undefined;
  if (view.getUint16(header) !== fromPort || view.getUint16(header + 2) !== toPort) return undefined;
  const length = view.getUint16(header + 4);
  if (length < UDP_BYTES || header + length > total) return undefined;
  return packet.slice(header + UDP_BYTES, header + length);
}
