// How are the options of a DHCP message written and read?

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

/** Values by option code. */
export type Options = ReadonlyMap<number, Uint8Array>;

/** Encodes options in the order given, with the end mark. */
export function encodeOptions(options: Options): Uint8Array {
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
