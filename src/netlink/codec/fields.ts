// Which kinds of values do attributes and structs contain, with which width and byte order?
import { type Ip, ipFromBytes, ipToBytes } from '../../net/ip.ts';
import { parseMac, renderMac } from '../../net/mac.ts';
import { readS32, readS32be, readU16, readU16be, readU32, readU32be, readU64, readU64be } from './reader.ts';
import type { Writer } from './writer.ts';

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
