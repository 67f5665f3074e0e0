// Which bytes is a DHCPv6 message between a client and a server?
//
// RFC 9915, section 8: type, transaction, options. Messages of servers are untrusted: any bytes yield a message or undefined,
// never an exception.
import { decodeOptions, encodeOptions, type Options } from './options.ts';

/** RFC 9915, section 7.3. */
export const MessageType = {
  solicit: 1,
  advertise: 2,
  request: 3,
  renew: 5,
  rebind: 6,
  reply: 7,
  release: 8,
  decline: 9,
  informationRequest: 11,
} as const;

const HEADER_BYTES = 4;
/** A transaction is a number of 24 bits. */
export const TRANSACTIONS = 0x1000000;

/** A message in either direction. */
export interface Message {
  readonly type: number;
  readonly transaction: number;
  readonly options: Options;
}

/** Encodes a message. */
export function encodeMessage({ type, transaction, options }: Message): Uint8Array {
  const tail = encodeOptions(options);
  const bytes = new Uint8Array(HEADER_BYTES + tail.length);
  new DataView(bytes.buffer).setUint32(0, type * TRANSACTIONS + (transaction % TRANSACTIONS));
  bytes.set(tail, HEADER_BYTES);
  return bytes;
}

/** Decodes a server's message; undefined for anything else, and for another transaction if one is given. */
export function decodeMessage(bytes: Uint8Array, asked?: number): Message | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const head = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0);
  const type = Math.floor(head / TRANSACTIONS);
  if (type !== MessageType.advertise && type !== MessageType.reply) return undefined;
  const transaction = head % TRANSACTIONS;
  if (asked !== undefined && asked !== transaction) return undefined;
  const options = decodeOptions(bytes.subarray(HEADER_BYTES));
  return options && { type, transaction, options };
}
