// How are the values of a match converted to bytes for comparison?
import { findCidr, netmaskOf, networkOf } from '../../../net/cidr.ts';
import { findIp, IP_BITS, type Ip, ipToBytes } from '../../../net/ip.ts';
import { hostU32 } from '../statements.ts';

/** One value: bytes, compared through `mask` if present; with `to`, the start of a range. */
export interface Operand {
  readonly value: Uint8Array;
  readonly mask?: Uint8Array;
  readonly to?: Uint8Array;
}

/** Maximum length of an interface name in bytes, including the terminating zero (linux/if.h, IFNAMSIZ). */
const IFNAMSIZ = 16;

/** `10.0.0.0/8`, `10.0.0.1`, `10.0.0.1-10.0.0.9`; undefined for anything else and for the other family. */
export function findAddress(family: 4 | 6, word: string): Operand | undefined {
  const range = findRange(word, text => addressBytes(family, findIp(text)));
  if (range) return range;
  const cidr = word.includes('/') ? findCidr(word) : undefined;
  if (cidr === undefined) {
    const value = addressBytes(family, findIp(word));
    return value && { value };
  }
  if (cidr.ip.family !== family) return undefined;
  const value = ipToBytes(networkOf(cidr));
  return cidr.prefix === IP_BITS[family] ? { value } : { value, mask: ipToBytes(netmaskOf(cidr)) };
}

/** `8080`, `8000-8999`. */
export function findPort(word: string): Operand | undefined {
  const bytes = (text: string) => {
    const port = findNumber(text, 0xffff);
    return port === undefined ? undefined : Uint8Array.of(port >> 8, port & 0xff);
  };
  const value = bytes(word);
  return value ? { value } : findRange(word, bytes);
}

/** `eth0`, `eth*`. */
export function findIfname(word: string): Operand | undefined {
  const bytes = new TextEncoder().encode(word);
  if (bytes.length === 0 || bytes.length >= IFNAMSIZ || /[/\s]/.test(word)) return undefined;
  if (word.endsWith('*')) return bytes.length > 1 ? { value: bytes.subarray(0, -1) } : undefined;
  const value = new Uint8Array(IFNAMSIZ);
  value.set(bytes);
  return { value };
}

/** `42`, `0x2a`: 32 bits in host byte order. */
export function findU32(word: string): Operand | undefined {
  const number = findNumber(word, 0xffff_ffff);
  return number === undefined ? undefined : { value: hostU32(number) };
}

/** Parses a name that stands for a number of this size in bytes, or the number itself. */
export function findNamed(
  names: Readonly<Record<string, number>>,
  size: 1 | 4,
): (word: string) => Operand | undefined {
  return word => {
    const number = Object.hasOwn(names, word) ? names[word] : findNumber(word, size === 1 ? 0xff : 0xffff);
    if (number === undefined) return undefined;
    return { value: size === 1 ? Uint8Array.of(number) : hostU32(number) };
  };
}

function findNumber(text: string, most: number): number | undefined {
  if (!/^(\d{1,10}|0x[0-9a-f]{1,8})$/i.test(text)) return undefined;
  const number = Number(text);
  return number <= most ? number : undefined;
}

function findRange(word: string, parse: (text: string) => Uint8Array | undefined): Operand | undefined {
  const dash = word.indexOf('-');
  if (dash < 0) return undefined;
  const [from, to] = [parse(word.slice(0, dash)), parse(word.slice(dash + 1))];
  return from && to && isOrdered(from, to) ? { value: from, to } : undefined;
}

function isOrdered(from: Uint8Array, to: Uint8Array): boolean {
  const at = from.findIndex((byte, i) => byte !== to[i]);
  return at < 0 || (from[at] ?? 0) < (to[at] ?? 0);
}

function addressBytes(family: 4 | 6, ip: Ip | undefined): Uint8Array | undefined {
  return ip?.family === family ? ipToBytes(ip) : undefined;
}
