// How are the options of a DHCPv6 message written and read?

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
