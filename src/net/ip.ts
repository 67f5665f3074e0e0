// How are IP addresses and prefixes represented, parsed, formatted, and which addresses does one cover?

export type Family = 4 | 6;

/** Both families, the older first. */
export const FAMILIES = [4, 6] as const satisfies readonly Family[];

/** Where the default route of a family leads. */
export const ANYWHERE = { 4: '0.0.0.0/0', 6: '::/0' } as const;

/** An IPv4 or IPv6 address as a number, so that ranges can be iterated and compared. */
export interface Ip {
  readonly family: Family;
  readonly value: bigint;
}

const [DOT, ZERO, NINE] = [0x2e, 0x30, 0x39];

/** The smallest MTU for IPv6, in bytes (RFC 8200, section 5): with less, the kernel takes it and its addresses from an interface. */
export const IPV6_MIN_MTU = 1280;

/** Number of bits in an address of the family. */
export const IP_BITS = { 4: 32, 6: 128 } as const;

/**
 * Parses an address. IPv4 octets must not have leading zeros, IPv6 addresses must not have a zone, and an IPv4-mapped IPv6
 * address becomes the IPv4 address that it contains, as in the reference implementations.
 * @throws Error when the text is not an address
 */
export function parseIp(text: string): Ip {
  const ip = findIp(text);
  if (ip === undefined) throw new Error(`Cannot read IP address "${text}": it is neither IPv4 nor IPv6`);
  return ip;
}

/** Like {@link parseIp}, but undefined when the text is not an address. */
export function findIp(text: string): Ip | undefined {
  return text.includes(':') ? findIpv6(text) : findIpv4(text);
}

/** True when the text is an address. */
export function isIp(text: string): boolean {
  return text.includes(':') ? findIpv6(text) !== undefined : findIpv4Number(text) !== undefined;
}

/** An IPv4 address as a number; undefined when the text is not one. Fast, for callers that parse tens of thousands. */
export function findIpv4Number(text: string): number | undefined {
  let value = 0;
  let octet = 0;
  let digits = 0;
  let dots = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === DOT && digits > 0) {
      value = value * 256 + octet;
      octet = 0;
      digits = 0;
      dots++;
    } else if (code >= ZERO && code <= NINE && (digits === 0 || octet > 0)) {
      octet = octet * 10 + code - ZERO;
      digits++;
      if (octet > 255) return undefined;
    } else return undefined;
  }
  return dots === 3 && digits > 0 ? value * 256 + octet : undefined;
}

/** The address in canonical text: dotted decimal, or RFC 5952 lower case. */
export function renderIp(ip: Ip): string {
  return ip.family === 4 ? renderIpv4(ip.value) : renderIpv6(ip.value);
}

/** The address in network byte order: 4 or 16 bytes. */
export function ipToBytes(ip: Ip): Uint8Array {
  const bytes = new Uint8Array(IP_BITS[ip.family] / 8);
  let rest = ip.value;
  for (let i = bytes.length - 1; i >= 0; i--) {
    bytes[i] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  return bytes;
}

/**
 * The address in 4 or 16 bytes of network byte order.
 * @throws Error for any other length
 */
export function ipFromBytes(bytes: Uint8Array): Ip {
  if (bytes.length !== 4 && bytes.length !== 16) {
    throw new Error(`Cannot read IP address from bytes: expected 4 or 16 bytes, found ${bytes.length}`);
  }
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return { family: bytes.length === 4 ? 4 : 6, value };
}

/** The link-local address that belongs to the six bytes of a hardware address (RFC 4291, appendix A). */
export function linkLocalOf([first = 0, ...others]: Uint8Array): Ip {
  const id = [first ^ 0x02, ...others.slice(0, 2), 0xff, 0xfe, ...others.slice(2)];
  return ipFromBytes(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, ...id));
}

/** Whether the address is of one link alone: fe80::/10. */
export function isLinkLocal({ family, value }: Ip): boolean {
  return family === 6 && value >> 118n === 0x3fan;
}

/** True when both are the same address of the same family. */
export function sameIp(a: Ip, b: Ip): boolean {
  return a.family === b.family && a.value === b.value;
}

/** The address `offset` steps ahead (back when negative). It may leave the family's address space: check it. */
export function offsetIp(ip: Ip, offset: bigint): Ip {
  return { family: ip.family, value: ip.value + offset };
}

function findIpv4(text: string): Ip | undefined {
  const number = findIpv4Number(text);
  return number === undefined ? undefined : { family: 4, value: BigInt(number) };
}

function findIpv6(text: string): Ip | undefined {
  const halves = text.split('::');
  if (halves.length > 2) return undefined;
  const head = groupsOf(halves[0] ?? '', halves.length === 1);
  const tail = halves.length === 2 ? groupsOf(halves[1] ?? '', true) : [];
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return undefined;
  let value = 0n;
  for (const group of [...head, ...new Array<number>(missing).fill(0), ...tail]) {
    value = (value << 16n) | BigInt(group);
  }
  return withoutMapping({ family: 6, value });
}

/** The address itself, or the IPv4 address that an IPv4-mapped one contains. */
export function withoutMapping(ip: Ip): Ip {
  const isMapped = ip.family === 6 && ip.value >> 32n === 0xffffn;
  return isMapped ? { family: 4, value: ip.value & 0xffffffffn } : ip;
}

/** 16-bit groups of one side of "::"; an embedded IPv4 address is only allowed at the end of the text. */
function groupsOf(text: string, last: boolean): number[] | undefined {
  if (text === '') return [];
  const groups: number[] = [];
  const parts = text.split(':');
  for (const [i, part] of parts.entries()) {
    if (part.includes('.') && last && i === parts.length - 1) {
      const v4 = findIpv4(part);
      if (v4 === undefined) return undefined;
      groups.push(Number(v4.value >> 16n), Number(v4.value & 0xffffn));
    } else if (/^[0-9a-fA-F]{1,4}$/.test(part)) groups.push(Number.parseInt(part, 16));
    else return undefined;
  }
  return groups;
}

function renderIpv4(value: bigint): string {
  return [24n, 16n, 8n, 0n].map(shift => (value >> shift) & 0xffn).join('.');
}

function renderIpv6(value: bigint): string {
  const groups: number[] = [];
  for (let shift = 112n; shift >= 0n; shift -= 16n) groups.push(Number((value >> shift) & 0xffffn));
  const { start, length } = longestZeroRun(groups);
  const hex = (part: number[]) => part.map(group => group.toString(16)).join(':');
  // RFC 5952 section 4.2.2: a single zero group is not shortened.
  if (length < 2) return hex(groups);
  return `${hex(groups.slice(0, start))}::${hex(groups.slice(start + length))}`;
}

function longestZeroRun(groups: number[]): { start: number; length: number } {
  let best = { start: 0, length: 0 };
  let start = 0;
  for (let i = 0; i <= groups.length; i++) {
    if (i < groups.length && groups[i] === 0) continue;
    if (i - start > best.length) best = { start, length: i - start };
    start = i + 1;
  }
  return best;
}

/** An address and its prefix length; host bits are kept (`10.1.2.3/24` is not changed). */
export interface Cidr {
  readonly ip: Ip;
  readonly prefix: number;
}

/**
 * Parses `address/prefix`.
 * @throws Error when either half is not valid
 */
export function parseCidr(text: string): Cidr {
  const cidr = findCidr(text);
  if (cidr === undefined)
    throw new Error(`Cannot read address with prefix "${text}": expected address/prefix`);
  return cidr;
}

/** Like {@link parseCidr}, but undefined when the text is not an address with a prefix. */
export function findCidr(text: string): Cidr | undefined {
  const slash = text.indexOf('/');
  if (slash < 0) return undefined;
  const ipText = text.slice(0, slash);
  const prefixText = text.slice(slash + 1);
  const ip = findIp(ipText);
  if (ip === undefined || !/^(0|[1-9]\d{0,2})$/.test(prefixText)) return undefined;
  // The prefix of an IPv4-mapped IPv6 address includes the 96 bits of the mapping.
  const mapped = ip.family === 4 && ipText.includes(':');
  const prefix = Number(prefixText) - (mapped ? 96 : 0);
  if (prefix < 0 || prefix > IP_BITS[ip.family]) return undefined;
  return { ip, prefix };
}

/** Formats `address/prefix`, keeping host bits. */
export function renderCidr(cidr: Cidr): string {
  return `${renderIp(cidr.ip)}/${cidr.prefix}`;
}

/** First address of the subnet: all host bits zero. */
export function networkOf(cidr: Cidr): Ip {
  return { family: cidr.ip.family, value: cidr.ip.value & maskOf(cidr) };
}

/** Last address of the subnet: all host bits one (the broadcast address in IPv4). */
export function lastOf(cidr: Cidr): Ip {
  return { family: cidr.ip.family, value: networkOf(cidr).value | hostMaskOf(cidr) };
}

/** True for a subnet of one or two addresses, which hosts have all of: none is the network's or a broadcast (RFC 3021, RFC 6164). */
export function isSmallest({ ip, prefix }: Cidr): boolean {
  return prefix > IP_BITS[ip.family] - 2;
}

/** The address alone. */
export function hostCidr(ip: Ip): Cidr {
  return { ip, prefix: IP_BITS[ip.family] };
}

/** The subnet itself: the address with its host bits cleared. */
export function subnetOf(cidr: Cidr): Cidr {
  return { ip: networkOf(cidr), prefix: cidr.prefix };
}

/** True when the subnet covers the address. */
export function cidrContains(cidr: Cidr, ip: Ip): boolean {
  return ip.family === cidr.ip.family && (ip.value & maskOf(cidr)) === networkOf(cidr).value;
}

/** True when the subnets share at least one address. */
export function cidrsOverlap(a: Cidr, b: Cidr): boolean {
  return cidrContains(a, networkOf(b)) || cidrContains(b, networkOf(a));
}

/** The subnet mask as an address, for example `255.255.255.0`. */
export function netmaskOf(cidr: Cidr): Ip {
  return { family: cidr.ip.family, value: maskOf(cidr) };
}

function hostMaskOf(cidr: Cidr): bigint {
  return (1n << BigInt(IP_BITS[cidr.ip.family] - cidr.prefix)) - 1n;
}

function maskOf(cidr: Cidr): bigint {
  return ((1n << BigInt(IP_BITS[cidr.ip.family])) - 1n) ^ hostMaskOf(cidr);
}

/** Equal for two of one subnet, whatever their host bits: for maps of routes. */
export function subnetKey(cidr: Cidr): string {
  const { family, value } = networkOf(cidr);
  return `${family} ${value} ${cidr.prefix}`;
}

/** Whether both are in one subnet, whatever their host bits. */
export function sameSubnet(a: Cidr, b: Cidr): boolean {
  return subnetKey(a) === subnetKey(b);
}

/** Finds those with the destination of a subnet, in constant time. */
export function bySubnet<T extends { readonly dst: Cidr }>(all: readonly T[]): (dst: Cidr) => readonly T[] {
  const found = new Map<string, T[]>();
  for (const one of all) {
    const key = subnetKey(one.dst);
    const known = found.get(key);
    if (known) known.push(one);
    else found.set(key, [one]);
  }
  return dst => found.get(subnetKey(dst)) ?? [];
}

/** The checksum of IPv4, UDP, ICMP and ICMPv6 (RFC 1071). */
export function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
