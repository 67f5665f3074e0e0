// How are the options of a DHCPv6 message written and read?

import { type Ip, ipFromBytes } from '../../../../src/net/ip.ts';
import { textOf } from '../../codec/values.ts';

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
const HEADER_BYTES = 4;

/** An option may occur several times, so this is a list. */
export type Options = readonly (readonly [code: number, value: Uint8Array])[];

/** Encodes options in the order given. A value has at most 65535 bytes. */
export function encodeOptions(options: Options): Uint8Array {
  const size = options.reduce((sum, [, value]) => sum + HEADER_BYTES + value.length, 0);
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const [code, value] of options) {
    view.setUint16(at, code);
    view.setUint16(at + 2, value.length);
    bytes.set(value, at + HEADER_BYTES);
    at += HEADER_BYTES + value.length;
  }
  return bytes;
}

/** Reads options; undefined if one of them does not fit into the bytes. */
export function decodeOptions(bytes: Uint8Array): Options | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const options: [number, Uint8Array][] = [];
  for (let at = 0; at < bytes.length; ) {
    if (at + HEADER_BYTES > bytes.length) return undefined;
    const end = at + HEADER_BYTES + view.getUint16(at + 2);
    if (end > bytes.length) return undefined;
    options.push([view.getUint16(at), bytes.slice(at + HEADER_BYTES, end)]);
    at = end;
  }
  return options;
}

/** The first value of a code. */
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
export interface StatusSaid {
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

const ADDRESS_BYTES = 16;
const MAX_NAMESERVERS = 8;

/** Whether the address is of the link alone: fe80::/10. */
export function isLinkLocal({ value }: Ip): boolean {
  return value >> 118n === 0x3fan;
}

/** Whether a host can be reached by the address: not unspecified, loopback, IPv4-mapped, of the link alone, or multicast. */
export function isGlobal(ip: Ip): boolean {
  const { value } = ip;
  return (
    ip.family === 6 && value >> 32n !== 0xffffn && value > 1n && value >> 120n !== 0xffn && !isLinkLocal(ip)
  );
}

/** The addresses of a list, as far as a host can be reached by them. */
export function addressesOf(value: Uint8Array | undefined): Ip[] {
  const found: Ip[] = [];
  for (let at = 0; value && at + ADDRESS_BYTES <= value.length && found.length < MAX_NAMESERVERS; ) {
    const ip = ipFromBytes(value.subarray(at, at + ADDRESS_BYTES));
    if (isGlobal(ip)) found.push(ip);
    at += ADDRESS_BYTES;
  }
  return found;
}
