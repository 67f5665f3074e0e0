// What is the structure of a netlink message: envelope, fixed header, attributes?
import { type AttrSet, decodePart, type FixedField, s32, u16, u32 } from './attrs.ts';
import { align4, readU16, readU32, Writer } from './bytes.ts';

type Members = readonly (readonly [name: string, field: FixedField<unknown>])[];

/** A C struct as a field: usable as a message header, as an attribute's payload and inside other structs. */
export interface Struct<V> {
  readonly size: number;
  /** All fields zero; spread it to fill irrelevant fields. */
  readonly zero: V;
  encode(writer: Writer, value: Partial<V>, siblings?: object): void;
  decode(bytes: Uint8Array, siblings?: object): V;
  decodeAt(bytes: Uint8Array, from: number, to: number): V;
}

/** Every field of the layout except those named `_…`, which are padding. */
type ValuesOf<L extends Members> = {
  -readonly [E in L[number] as E[0] extends `_${string}` ? never : E[0]]: E[1] extends {
    decode(bytes: Uint8Array, siblings: object): infer T;
  }
    ? T
    : never;
};

/**
 * Describes a struct: its fields in order, with padding as explicit fields named `_pad…`. Fields left out when encoding are
 * zero. Input longer than the struct is accepted (newer kernels append fields), shorter input is not.
 */
export function struct<const L extends Members>(name: string, layout: L): Struct<ValuesOf<L>> {
  const size = layout.reduce((sum, [, field]) => sum + field.size, 0);
  const decodeAt = (bytes: Uint8Array, from: number, to: number): ValuesOf<L> => {
    if (to - from < size) throw new Error(`struct ${name}: expected ${size} bytes, found ${to - from}`);
    const values: Record<string, unknown> = {};
    let at = from;
    for (const [key, field] of layout) {
      if (!key.startsWith('_')) values[key] = decodePart(field, bytes, at, at + field.size, values);
      at += field.size;
    }
    return values as ValuesOf<L>;
  };
  const decode = (bytes: Uint8Array): ValuesOf<L> => decodeAt(bytes, 0, bytes.length);
  return {
    size,
    zero: decode(new Uint8Array(size)),
    decode,
    decodeAt,
    encode(writer: Writer, value: Partial<ValuesOf<L>>) {
      const given: Record<string, unknown> = value;
      for (const [key, field] of layout) {
        if (given[key] === undefined) writer.zeros(field.size);
        else field.encode(writer, given[key], given);
      }
    },
  };
}

/** linux/netlink.h, nlmsg_type */
export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;
/** Lower types belong to the protocol itself. */
const NLMSG_MIN_TYPE = 0x10;

/** linux/netlink.h, nlmsg_flags */
export const NLM_F_REQUEST = 0x1;
export const NLM_F_MULTI = 0x2;
export const NLM_F_ACK = 0x4;
export const NLM_F_ECHO = 0x8;
export const NLM_F_DUMP_INTR = 0x10;
export const NLM_F_CAPPED = 0x100;
export const NLM_F_ACK_TLVS = 0x200;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
export const NLM_F_DUMP = 0x300;

/** struct nlmsghdr { __u32 nlmsg_len; __u16 nlmsg_type; __u16 nlmsg_flags; __u32 nlmsg_seq; __u32 nlmsg_pid; } */
export const nlmsghdr = struct('nlmsghdr', [
  ['length', u32],
  ['type', u16],
  ['flags', u16],
  ['seq', u32],
  ['pid', u32],
]);

/** struct nlmsgerr { int error; struct nlmsghdr msg; } */
export const nlmsgerr = struct('nlmsgerr', [
  ['error', s32],
  ['request', nlmsghdr],
]);

/** A message with its body not yet decoded. */
export interface Envelope {
  readonly type: number;
  readonly flags: number;
  readonly seq: number;
  readonly body: Uint8Array;
}

/** A request without its envelope. */
export interface Request {
  /** The operation, human-readable, for the error: `add address 10.1.0.2/24 to "eth0"`. */
  readonly op: string;
  readonly type: number;
  readonly flags?: number;
  readonly body: Uint8Array;
  /** A question. The kernel always answers it with one message or a refusal, so no acknowledgement is requested. */
  readonly isQuestion?: boolean;
  /** Refusals that mean that the object does not exist. */
  readonly absent?: readonly number[];
}

/** The body of one family of messages: a fixed header, then attributes. */
export interface Layout<H, A> {
  encode(header: Partial<H>, attributes: A): Uint8Array;
  decode(body: Uint8Array): { header: H; attrs: A };
}

/** Combines a header struct and an attribute set, for example `ifinfomsg` and the link attributes. */
export function layout<H extends object, A extends object>(header: Struct<H>, set: AttrSet<A>): Layout<H, A> {
  return {
    encode(values, attributes) {
      scratch.clear();
      header.encode(scratch, values);
      scratch.pad();
      set.encode(scratch, attributes, attributes);
      return scratch.take();
    },
    decode(body) {
      const end = body.length;
      return {
        header: header.decode(body),
        attrs: decodePart(set, body, Math.min(align4(header.size), end), end, {}),
      };
    },
  };
}

/** One shared writer: each encoding is finished before the next one starts. */
const scratch = new Writer();

/** Packs messages into one buffer, each with its envelope and padding. The bytes are valid until the next call. */
export function encodeMessages(messages: readonly Envelope[]): Uint8Array {
  sending.clear();
  for (const { type, flags, seq, body } of messages) {
    sending.u32(nlmsghdr.size + body.length);
    sending.u16(type);
    sending.u16(flags);
    sending.u32(seq);
    sending.u32(0);
    sending.bytes(body);
    sending.pad();
  }
  return sending.finish();
}

const sending = new Writer();

/**
 * Splits a buffer into messages, up to a length. The bodies are copies, which outlive the buffer.
 * @param only skips messages that contain none of these byte strings, except those that end or interrupt a dump: of thousands
 * of messages only a few may matter, and a byte search takes a fraction of the time
 */
export function decodeMessages(
  buffer: Uint8Array,
  end = buffer.length,
  only?: readonly Uint8Array[],
): Envelope[] {
  const messages: Envelope[] = [];
  const hits = only && placesOf(buffer.subarray(0, end), only);
  for (let at = 0, next = 0; at < end; ) {
    const left = end - at;
    if (left < nlmsghdr.size)
      throw new Error(`Cannot decode message at byte ${at}: ${left} bytes are no header`);
    const length = readU32(buffer, at);
    if (length < nlmsghdr.size || length > left)
      throw new Error(`Cannot decode message at byte ${at}: it claims ${length} of ${left} bytes`);
    const type = readU16(buffer, at + 4);
    const flags = readU16(buffer, at + 6);
    while (hits && (hits[next] ?? Infinity) < at) next++;
    const isHit = hits === undefined || (hits[next] ?? Infinity) < at + length;
    if (isHit || type < NLMSG_MIN_TYPE || flags & NLM_F_DUMP_INTR) {
      const body = buffer.slice(at + nlmsghdr.size, at + length);
      messages.push({ type, flags, seq: readU32(buffer, at + 8), body });
    }
    at += align4(length);
  }
  return messages;
}

/** The sorted offsets of all occurrences of the byte strings. */
function placesOf(buffer: Uint8Array, needles: readonly Uint8Array[]): number[] {
  const bytes = Buffer.from(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  const places: number[] = [];
  for (const needle of needles) {
    for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + 1)) places.push(at);
  }
  return places.sort((a, b) => a - b);
}
