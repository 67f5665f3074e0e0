// What do the values of options say, as far as a pod may believe them?
//
// A server is any host that answers first. Each function returns only what is well formed and within its bounds.

import { type Cidr, type Ip, ipFromBytes, networkOf } from '../../../src/net/ip.ts';

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

/** The addresses of a list that a host can have. */
export function addressesOf(value: Uint8Array | undefined, max = MAX_NAMESERVERS): Ip[] {
  const found: Ip[] = [];
  for (let at = 0; value && at + 4 <= value.length && found.length < max; at += 4) {
    const ip = ipFromBytes(value.subarray(at, at + 4));
    if (isHost(ip)) found.push(ip);
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
