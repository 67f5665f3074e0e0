// Which bytes is a DHCP message?
//
// RFC 2131, section 2: the fixed fields of BOOTP, the magic cookie, then options. Messages of servers are untrusted: any bytes
// yield a message or undefined, never an exception.
import { Code, decodeOptions, encodeOptions, type Options } from './options.ts';

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
export type Asked = Pick<ServerMessage, 'xid' | 'mac'>;

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

/** What a server answered. */
export interface ServerMessage {
  readonly xid: number;
  readonly mac: Uint8Array;
  /** The address for the client; zeros in a NAK. */
  readonly yiaddr: Uint8Array;
  readonly type: number;
  readonly options: Options;
}

/** Encodes a message of a client. */
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
