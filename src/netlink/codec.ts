// How are netlink messages described once, for both writing and reading: bytes, attributes, fixed header and envelope?

import { parseMac, renderMac } from '../net/interface.ts';
import { type Ip, ipFromBytes, ipToBytes } from '../net/ip.ts';

/** linux/netlink.h: attributes and messages are padded to four bytes. */
export function align4(length: number): number {
  return (length + 3) & ~3;
}

/** A growing byte buffer in host byte order (little endian on every supported machine), with length fields patched later. */
export class Writer {
  #bytes = new Uint8Array(512);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The bytes written so far; valid until the next write. */
  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Returns a copy of the bytes written so far and empties the writer. */
  take(): Uint8Array {
    const bytes = this.#bytes.slice(0, this.#length);
    this.#length = 0;
    return bytes;
  }

  clear(): void {
    this.#length = 0;
  }

  u8(value: number): void {
    const at = this.#grow(1);
    this.#bytes[at] = value;
  }

  u16(value: number, bigEndian = false): void {
    const at = this.#grow(2);
    this.#view.setUint16(at, value, !bigEndian);
  }

  u32(value: number, bigEndian = false): void {
    const at = this.#grow(4);
    this.#view.setUint32(at, value, !bigEndian);
  }

  u64(value: bigint, bigEndian = false): void {
    const at = this.#grow(8);
    this.#view.setBigUint64(at, value, !bigEndian);
  }

  bytes(value: Uint8Array): void {
    const at = this.#grow(value.length);
    this.#bytes.set(value, at);
  }

  zeros(count: number): void {
    const at = this.#grow(count);
    this.#bytes.fill(0, at, at + count);
  }

  pad(): void {
    this.zeros(align4(this.#length) - this.#length);
  }

  patchU16(at: number, value: number): void {
    this.#view.setUint16(at, value, true);
  }

  /** Makes room and returns its offset. May replace the buffer: read `#bytes` and `#view` only afterwards. */
  #grow(by: number): number {
    const at = this.#length;
    this.#length += by;
    if (this.#length > this.#bytes.length) {
      const bigger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length));
      bigger.set(this.#bytes.subarray(0, at));
      this.#bytes = bigger;
      this.#view = new DataView(bigger.buffer);
    }
    return at;
  }
}

// Byte by byte: for an attribute of a few bytes, creating a DataView costs ten times as much as reading it.

/** Unsigned, 16 bits; in host byte order unless `bigEndian`, as those below. */
function readU16(bytes: Uint8Array, at: number, bigEndian = false): number {
  const low = bytes[bigEndian ? at + 1 : at] ?? 0;
  const high = bytes[bigEndian ? at : at + 1] ?? 0;
  return low | (high << 8);
}

function readU32(bytes: Uint8Array, at: number, bigEndian = false): number {
  return readS32(bytes, at, bigEndian) >>> 0;
}

export function readS32(bytes: Uint8Array, at: number, bigEndian = false): number {
  const low = readU16(bytes, bigEndian ? at + 2 : at, bigEndian);
  const high = readU16(bytes, bigEndian ? at : at + 2, bigEndian);
  return low | (high << 16);
}

function readU64(bytes: Uint8Array, at: number, bigEndian = false): bigint {
  const low = readU32(bytes, bigEndian ? at + 4 : at, bigEndian);
  const high = readU32(bytes, bigEndian ? at : at + 4, bigEndian);
  return BigInt(low) | (BigInt(high) << 32n);
}

/** linux/netlink.h */
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;
const NLA_HDRLEN = 4;

export interface RawAttribute {
  readonly type: number;
  readonly bytes: Uint8Array;
}

type Table = Readonly<Record<string, readonly [type: number, field: Field<unknown>]>>;

type ValueOf<F> = F extends { decode(bytes: Uint8Array, siblings: object): infer V } ? V : never;

/** Values of an attribute set, of which undefined ones are not sent; `unknown` holds attributes that newer kernels added. */
type AttrsOf<T extends Table> = {
  -readonly [K in keyof T]?: ValueOf<T[K][1]> | undefined;
} & { unknown?: RawAttribute[] };

/** A set of attributes as a field, so that sets can be nested. */
export interface AttrSet<V> extends Field<V> {
  readonly nested: true;
}

export type ValuesOf<S> = S extends Field<infer V> ? V : never;

/**
 * Describes a set of attributes: each readable name with its kernel constant and field. Attributes are written in the order
 * of the value's keys. When reading, unknown attributes are kept and damaged ones are an error.
 */
export function attrs<const T extends Table>(name: string, table: T): AttrSet<AttrsOf<T>> {
  const byType = new Map(Object.entries(table).map(([key, [type, field]]) => [type, { key, field }]));
  return {
    nested: true,
    encode(writer, values) {
      for (const key of Object.keys(values)) {
        const value = (values as Record<string, unknown>)[key];
        if (value === undefined || key === 'unknown') continue;
        const row = table[key];
        if (row === undefined) throw new Error(`Cannot encode ${name}: it has no attribute "${key}"`);
        encodeAttribute(writer, row[0], row[1], value, values);
      }
      for (const raw of (values as { unknown?: RawAttribute[] }).unknown ?? []) {
        encodeAttribute(writer, raw.type, bytes, raw.bytes, values);
      }
    },
    ...reading((bytes, from, to) => decodeSet(name, byType, bytes, from, to) as AttrsOf<T>),
  };
}

/** A list whose elements are attributes of the same type and kind (`NFTA_LIST_ELEM`; the types of action lists count up). */
export function listOf<V>(element: Field<V>, type: number | 'numbered' = 1): Field<readonly V[]> {
  return {
    nested: true,
    encode(writer, values) {
      for (const [i, value] of values.entries()) {
        encodeAttribute(writer, type === 'numbered' ? i + 1 : type, element, value, {});
      }
    },
    ...reading((bytes, from, to) => decodeList(element, bytes, from, to)),
  };
}

/**
 * A payload whose layout is selected by a sibling text: `IFLA_INFO_DATA` by `IFLA_INFO_KIND`, `TCA_OPTIONS` by `TCA_KIND`.
 * Payloads of kinds that are not in the table are kept as bytes.
 */
export function byKind<const T extends Readonly<Record<string, Field<unknown>>>>(
  key: string,
  kinds: T,
): Field<ValuesOf<T[keyof T]> | Uint8Array> {
  const layoutFor = (siblings: object): Field<unknown> | undefined => {
    const kind = (siblings as Record<string, unknown>)[key];
    return typeof kind === 'string' && Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
  };
  return {
    nested: true,
    encode(writer, value, siblings) {
      if (value instanceof Uint8Array) return writer.bytes(value);
      const layout = layoutFor(siblings);
      if (layout === undefined)
        throw new Error(`Cannot encode payload: its kind is not in ${Object.keys(kinds)}`);
      layout.encode(writer, value, siblings);
    },
    ...reading((bytes, from, to, siblings) => {
      const layout = layoutFor(siblings);
      const value = layout ? decodePart(layout, bytes, from, to, siblings) : bytes.slice(from, to);
      return value as ValuesOf<T[keyof T]> | Uint8Array;
    }),
  };
}

function encodeAttribute<V>(writer: Writer, type: number, field: Field<V>, value: V, siblings: object): void {
  const start = writer.length;
  writer.u16(0);
  writer.u16(field.nested && !(value instanceof Uint8Array) ? type | NLA_F_NESTED : type);
  field.encode(writer, value, siblings);
  writer.patchU16(start, writer.length - start);
  writer.pad();
}

type Rows = ReadonlyMap<number, { readonly key: string; readonly field: Field<unknown> }>;

function decodeSet(name: string, rows: Rows, bytes: Uint8Array, from: number, to: number): object {
  const values: Record<string, unknown> = {};
  let unknown: number[] | undefined;
  for (let at = from; at < to; ) {
    const end = at + lengthAt(name, bytes, at, from, to);
    const type = readU16(bytes, at + 2) & NLA_TYPE_MASK;
    const row = rows.get(type);
    if (row === undefined) {
      unknown ??= [];
      unknown.push(type, at + NLA_HDRLEN, end);
    } else {
      values[row.key] = decodeAttribute(row.field, bytes, at + NLA_HDRLEN, end, values, name, row.key);
    }
    at += align4(end - at);
  }
  if (unknown !== undefined) keepUnknown(values, bytes, unknown);
  return values;
}

function decodeList<V>(element: Field<V>, bytes: Uint8Array, from: number, to: number): V[] {
  const values: V[] = [];
  for (let at = from; at < to; ) {
    const end = at + lengthAt('list', bytes, at, from, to);
    values.push(decodeAttribute(element, bytes, at + NLA_HDRLEN, end, {}, 'list'));
    at += align4(end - at);
  }
  return values;
}

/** Length of the attribute at an offset, including its header, without its padding. */
function lengthAt(name: string, bytes: Uint8Array, at: number, from: number, to: number): number {
  const length = to - at < NLA_HDRLEN ? 0 : readU16(bytes, at);
  if (length >= NLA_HDRLEN && at + length <= to) return length;
  throw new Error(
    `Cannot decode ${name}: attribute at byte ${at - from} claims ${length} of ${to - at} bytes`,
  );
}

/** A link alone has forty attributes that are rarely used, so unknown attributes are copied out only on first access. */
function keepUnknown(values: object, bytes: Uint8Array, places: readonly number[]): void {
  let found: RawAttribute[] | undefined;
  const get = (): RawAttribute[] => {
    if (found) return found;
    found = [];
    for (let i = 0; i < places.length; i += 3) {
      found.push({ type: places[i] ?? 0, bytes: bytes.slice(places[i + 1], places[i + 2]) });
    }
    return found;
  };
  Object.defineProperty(values, 'unknown', { enumerable: true, configurable: true, get });
}

function decodeAttribute<V>(
  field: Field<V>,
  bytes: Uint8Array,
  from: number,
  to: number,
  siblings: object,
  name: string,
  key?: string,
): V {
  try {
    return decodePart(field, bytes, from, to, siblings);
  } catch (cause) {
    const where = key === undefined ? name : `${name}.${key}`;
    throw new Error(`Cannot decode ${where}: ${(cause as Error).message}`, { cause });
  }
}

/** A kind of value. `siblings` are the other values of the same set, which may determine a payload's layout. */
export interface Field<T> {
  /** True if attributes of this kind carry NLA_F_NESTED. */
  readonly nested?: boolean;
  encode(writer: Writer, value: T, siblings: object): void;
  decode(bytes: Uint8Array, siblings: object): T;
  /** {@link decode} of a part of the bytes, for frequent kinds where creating a view of the part would be noticeable. */
  readonly decodeAt?: Decoding<T>;
}

type Decoding<T> = (bytes: Uint8Array, from: number, to: number, siblings: object) => T;

/** Both ways to decode a field, by the one that decodes a part. */
function reading<T>(decodeAt: Decoding<T>) {
  return {
    decode: (bytes: Uint8Array, siblings: object = {}) => decodeAt(bytes, 0, bytes.length, siblings),
    decodeAt,
  };
}

function decodePart<T>(field: Field<T>, bytes: Uint8Array, from: number, to: number, siblings: object): T {
  return field.decodeAt
    ? field.decodeAt(bytes, from, to, siblings)
    : field.decode(bytes.subarray(from, to), siblings);
}

/** A kind of value with a fixed size in bytes, as in a C struct. */
export interface FixedField<T> extends Field<T> {
  readonly size: number;
}

export const u8: FixedField<number> = fixed(
  1,
  (w, v) => w.u8(v),
  (bytes, at) => bytes[at] ?? 0,
);

export const u16: FixedField<number> = fixed(2, (w, v) => w.u16(v), readU16);

export const s16: FixedField<number> = fixed(
  2,
  (w, v) => w.u16(v & 0xffff),
  (bytes, at) => (readU16(bytes, at) << 16) >> 16,
);

export const u32: FixedField<number> = fixed(4, (w, v) => w.u32(v), readU32);

export const s32: FixedField<number> = fixed(4, (w, v) => w.u32(v >>> 0), readS32);

export const u64: FixedField<bigint> = fixed(8, (w, v) => w.u64(v), readU64);

export const u16be: FixedField<number> = fixed(2, (w, v) => w.u16(v, true), inNetworkOrder(readU16));

export const u32be: FixedField<number> = fixed(4, (w, v) => w.u32(v, true), inNetworkOrder(readU32));

export const s32be: FixedField<number> = fixed(4, (w, v) => w.u32(v >>> 0, true), inNetworkOrder(readS32));

export const u64be: FixedField<bigint> = fixed(8, (w, v) => w.u64(v, true), inNetworkOrder(readU64));

/** Text with a terminating zero (NLA_NUL_STRING). */
export const str: Field<string> = {
  encode(writer, value) {
    writer.bytes(encoder.encode(value));
    writer.u8(0);
  },
  ...reading(textIn),
};

export const bytes: Field<Uint8Array> = {
  encode: (writer, value) => writer.bytes(value),
  decode: value => value.slice(),
};

/** A hardware address in colon notation. */
export const mac: Field<string> = {
  encode: (writer, value) => writer.bytes(parseMac(value)),
  decode: value => renderMac(value),
};

/** An IPv4 or IPv6 address, distinguished by its length. */
export const ip: Field<Ip> = {
  encode: (writer, value) => writer.bytes(ipToBytes(value)),
  decode: value => ipFromBytes(value),
};

function fixed<T>(
  size: number,
  encode: (writer: Writer, value: T) => void,
  read: (bytes: Uint8Array, at: number) => T,
): FixedField<T> {
  const decodeAt = (value: Uint8Array, from: number, to: number): T => {
    if (to - from < size) throw new Error(`expected ${size} bytes, found ${to - from}`);
    return read(value, from);
  };
  return { size, encode, ...reading(decodeAt) };
}

function inNetworkOrder<T>(read: (bytes: Uint8Array, at: number, bigEndian: boolean) => T) {
  return (bytes: Uint8Array, at: number): T => read(bytes, at, true);
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The text up to the first zero. Nearly all texts are short and ASCII. */
function textIn(value: Uint8Array, from: number, to: number): string {
  let text = '';
  for (let at = from; at < to; at++) {
    const byte = value[at] ?? 0;
    if (byte === 0) break;
    if (byte > 127) return decoder.decode(value.subarray(from, to)).replace(/\0.*/s, '');
    text += String.fromCharCode(byte);
  }
  return text;
}

type Members = Readonly<Record<string, FixedField<unknown>>>;

/** A C struct as a field: usable as a message header, as an attribute's payload and inside other structs. */
export interface Struct<V> {
  readonly size: number;
  /** All fields zero; spread it to fill irrelevant fields. */
  readonly zero: V;
  encode(writer: Writer, value: Partial<V>, siblings?: object): void;
  decode(bytes: Uint8Array, siblings?: object): V;
  readonly decodeAt: Decoding<V>;
}

/** Every field of the layout except those named `_…`, which are padding. */
type StructOf<L extends Members> = {
  -readonly [K in keyof L as K extends `_${string}` ? never : K]: ValueOf<L[K]>;
};

/**
 * Describes a struct as C declares it: its fields in order, with padding as explicit fields named `_pad…`. Fields left out when
 * encoding are zero. Input longer than the struct is accepted (newer kernels append fields), shorter input is not.
 */
export function struct<L extends Members>(name: string, members: L): Struct<StructOf<L>> {
  const layout = Object.entries(members);
  const size = layout.reduce((sum, [, field]) => sum + field.size, 0);
  const decodeAt = (bytes: Uint8Array, from: number, to: number): StructOf<L> => {
    if (to - from < size) throw new Error(`struct ${name}: expected ${size} bytes, found ${to - from}`);
    const values: Record<string, unknown> = {};
    let at = from;
    for (const [key, field] of layout) {
      if (!key.startsWith('_')) values[key] = decodePart(field, bytes, at, at + field.size, values);
      at += field.size;
    }
    return values as StructOf<L>;
  };
  return {
    size,
    zero: decodeAt(new Uint8Array(size), 0, size),
    ...reading(decodeAt),
    encode(writer: Writer, value: Partial<StructOf<L>>) {
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

/** linux/netlink.h */
export const nlmsghdr = struct('nlmsghdr', { length: u32, type: u16, flags: u16, seq: u32, pid: u32 });
export const nlmsgerr = struct('nlmsgerr', { error: s32, request: nlmsghdr });

/** A message with its body not yet decoded. */
export interface Envelope {
  readonly type: number;
  readonly flags: number;
  readonly seq: number;
  readonly body: Uint8Array;
}

export interface Request {
  /** The operation, human-readable, for the error: `add address 10.1.0.2/24 to "eth0"`. */
  readonly op: string;
  readonly type: number;
  readonly flags?: number;
  readonly body: Uint8Array;
  /** A question. The kernel always answers it with one message or a refusal, so no acknowledgement is requested. */
  readonly isQuestion?: boolean;
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
