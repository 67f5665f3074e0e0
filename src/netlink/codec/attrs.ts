// How is a set of attributes described once, for both reading and writing?
import { type Ip, ipFromBytes, ipToBytes } from '../../net/ip.ts';
import { parseMac, renderMac } from '../../net/mac.ts';
import {
  align4,
  readS32,
  readS32be,
  readU16,
  readU16be,
  readU32,
  readU32be,
  readU64,
  readU64be,
  type Writer,
} from './bytes.ts';

/** linux/netlink.h */
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;
const NLA_HDRLEN = 4;

/** An attribute that is not in the table. */
export interface RawAttribute {
  readonly type: number;
  readonly bytes: Uint8Array;
}

type Table = Readonly<Record<string, readonly [type: number, field: Field<unknown>]>>;

/** Values of an attribute set; `unknown` holds attributes that newer kernels added. */
export type AttrsOf<T extends Table> = {
  -readonly [K in keyof T]?: T[K][1] extends { decode(bytes: Uint8Array, siblings: object): infer V }
    ? V
    : never;
} & { unknown?: RawAttribute[] };

/** A set of attributes as a field, so that sets can be nested. */
export interface AttrSet<V> extends Field<V> {
  readonly nested: true;
}

/** Values of an {@link AttrSet}. */
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
        encodeAttribute(writer, raw.type, RAW, raw.bytes, values);
      }
    },
    decode: bytes => decodeSet(name, byType, bytes, 0, bytes.length) as AttrsOf<T>,
    decodeAt: (bytes, from, to) => decodeSet(name, byType, bytes, from, to) as AttrsOf<T>,
  };
}

/** A list whose elements are attributes of the same type and kind (`NFTA_LIST_ELEM`; the types of action lists count up). */
export function listOf<V>(
  element: Field<V>,
  { type, numbered = false }: { type?: number; numbered?: boolean } = {},
): Field<readonly V[]> {
  return {
    nested: true,
    encode(writer, values) {
      for (const [i, value] of values.entries()) {
        encodeAttribute(writer, numbered ? i + 1 : (type ?? 1), element, value, {});
      }
    },
    decode: bytes => decodeList(element, bytes, 0, bytes.length),
    decodeAt: (bytes, from, to) => decodeList(element, bytes, from, to),
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
    decode: (bytes, siblings) => decodeAs(layoutFor(siblings), bytes, 0, bytes.length, siblings),
    decodeAt: (bytes, from, to, siblings) => decodeAs(layoutFor(siblings), bytes, from, to, siblings),
  };

  function decodeAs(
    layout: Field<unknown> | undefined,
    bytes: Uint8Array,
    from: number,
    to: number,
    siblings: object,
  ): ValuesOf<T[keyof T]> | Uint8Array {
    const value = layout ? decodePart(layout, bytes, from, to, siblings) : bytes.slice(from, to);
    return value as ValuesOf<T[keyof T]> | Uint8Array;
  }
}

const RAW: Field<Uint8Array> = {
  encode: (writer, value) => writer.bytes(value),
  decode: bytes => bytes.slice(),
};

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
  decodeAt?(bytes: Uint8Array, from: number, to: number, siblings: object): T;
}

/** Decodes a part of the bytes. */
export function decodePart<T>(
  field: Field<T>,
  bytes: Uint8Array,
  from: number,
  to: number,
  siblings: object,
): T {
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

export const u16be: FixedField<number> = fixed(2, (w, v) => w.u16(v, true), readU16be);

export const u32be: FixedField<number> = fixed(4, (w, v) => w.u32(v, true), readU32be);

export const s32be: FixedField<number> = fixed(4, (w, v) => w.u32(v >>> 0, true), readS32be);

export const u64be: FixedField<bigint> = fixed(8, (w, v) => w.u64(v, true), readU64be);

/** Text with a terminating zero (NLA_NUL_STRING). */
export const str: Field<string> = {
  encode(writer, value) {
    writer.bytes(encoder.encode(value));
    writer.u8(0);
  },
  decode: value => textIn(value, 0, value.length),
  decodeAt: textIn,
};

/** Raw bytes. */
export const bytes: Field<Uint8Array> = {
  encode: (writer, value) => writer.bytes(value),
  decode: value => value.slice(),
};

/** An attribute that is true by being present. */
export const flag: Field<true> = {
  encode() {},
  decode: () => true,
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
  return { size, encode, decode: value => decodeAt(value, 0, value.length), decodeAt };
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The text up to the first zero. Nearly all texts are short and ASCII. */
function textIn(value: Uint8Array, from: number, to: number): string {
  let text = '';
  for (let at = from; at < to; at++) {
    const byte = value[at] ?? 0;
    if (byte === 0) break;
    if (byte > 127) return decodeUtf8(value.subarray(from, to));
    text += String.fromCharCode(byte);
  }
  return text;
}

function decodeUtf8(value: Uint8Array): string {
  const end = value.indexOf(0);
  return decoder.decode(end < 0 ? value : value.subarray(0, end));
}
