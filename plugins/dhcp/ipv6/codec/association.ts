// How does a message name the addresses of a client?
//
// RFC 9915, section 21.4: an identity association for non-temporary addresses (IA_NA) has a number that the client chose, times of
// renewal, and addresses with lifetimes.
import { type Ip, ipFromBytes, ipToBytes } from '../../../../src/net/ip.ts';
import { Code, decodeOptions, encodeOptions, type Options, type StatusSaid, statusIn } from './options.ts';

/** Number, T1, T2. */
const HEADER_BYTES = 12;
/** Address, preferred and valid lifetime. */
const ADDRESS_BYTES = 24;

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
    const value = new Uint8Array(ADDRESS_BYTES);
    value.set(ipToBytes(ip));
    return [Code.iaAddress, value] as const;
  });
  const tail = encodeOptions(options);
  const bytes = new Uint8Array(HEADER_BYTES + tail.length);
  bytes.set(iaid);
  bytes.set(tail, HEADER_BYTES);
  return bytes;
}

/** The client's association in a server's message; undefined if it is missing or malformed. @param iaid 4 bytes */
export function findAssociation(options: Options, iaid: Uint8Array): Association | undefined {
  for (const [code, value] of options) {
    if (code !== Code.iaNa || value.length < HEADER_BYTES) continue;
    if (Buffer.compare(value.subarray(0, 4), iaid) !== 0) continue;
    const own = decodeOptions(value.subarray(HEADER_BYTES));
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
  const options = value.length < ADDRESS_BYTES ? undefined : decodeOptions(value.subarray(ADDRESS_BYTES));
  if (options === undefined) return undefined;
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  return {
    ip: ipFromBytes(value.subarray(0, 16)),
    preferred: view.getUint32(16),
    valid: view.getUint32(20),
    status: statusIn(options),
  };
}
