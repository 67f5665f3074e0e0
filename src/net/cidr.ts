// What is an address with a prefix length, and which addresses does it cover?
import { findIp, IP_BITS, type Ip, renderIp } from './ip.ts';

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
