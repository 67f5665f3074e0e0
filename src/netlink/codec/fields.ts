// Which kinds of values do attributes and structs hold, and how wide and in which byte order are they?
import { type Ip, ipFromBytes, ipToBytes } from '../../net/ip.ts';
import { parseMac, renderMac } from '../../net/mac.ts';
import type { Writer } from './writer.ts';

/** A kind of value. `siblings` are the other values of the same set: a payload's layout may depend on them. */
export interface Field<T> {
  /** Attributes of this kind carry NLA_F_NESTED. */
  readonly nested?: boolean;
  encode(writer: Writer, value: T, siblings: object): void;
  decode(bytes: Uint8Array, siblings: object): T;
}

/** A kind of value with a fixed size in bytes: what a C struct is made of. */
export interface FixedField<T> extends Field<T> {
  readonly size: number;
}

export const u8: FixedField<number> = fixed(
  1,
  (w, v) => w.u8(v),
  view => view.getUint8(0),
);

export const u16: FixedField<number> = fixed(
  2,
  (w, v) => w.u16(v),
  view => view.getUint16(0, true),
);

export const s16: FixedField<number> = fixed(
  2,
  (w, v) => w.u16(v & 0xffff),
  view => view.getInt16(0, true),
);

export const u32: FixedField<number> = fixed(
  4,
  (w, v) => w.u32(v),
  view => view.getUint32(0, true),
);

export const s32: FixedField<number> = fixed(
  4,
  (w, v) => w.u32(v >>> 0),
  view => view.getInt32(0, true),
);

export const u64: FixedField<bigint> = fixed(
  8,
  (w, v) => w.u64(v),
  view => view.getBigUint64(0, true),
);

export const u16be: FixedField<number> = fixed(
  2,
  (w, v) => w.u16(v, true),
  view => view.getUint16(0, false),
);

export const u32be: FixedField<number> = fixed(
  4,
  (w, v) => w.u32(v, true),
  view => view.getUint32(0, false),
);

export const s32be: FixedField<number> = fixed(
  4,
  (w, v) => w.u32(v >>> 0, true),
  view => view.getInt32(0, false),
);

export const u64be: FixedField<bigint> = fixed(
  8,
  (w, v) => w.u64(v, true),
  view => view.getBigUint64(0, false),
);

/** Text with a terminating zero (NLA_NUL_STRING). */
export const str: Field<string> = {
  encode(writer, value) {
    writer.bytes(new TextEncoder().encode(value));
    writer.u8(0);
  },
  decode(bytes) {
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  },
};

/** Bytes as they are. */
export const bytes: Field<Uint8Array> = {
  encode: (writer, value) => writer.bytes(value),
  decode: value => value.slice(),
};

/** An attribute whose presence is its value. */
export const flag: Field<true> = {
  encode() {},
  decode: () => true,
};

/** A hardware address in colon notation. */
export const mac: Field<string> = {
  encode: (writer, value) => writer.bytes(parseMac(value)),
  decode: value => renderMac(value),
};

/** An IPv4 or IPv6 address; its length tells which. */
export const ip: Field<Ip> = {
  encode: (writer, value) => writer.bytes(ipToBytes(value)),
  decode: value => ipFromBytes(value),
};

function fixed<T>(
  size: number,
  encode: (writer: Writer, value: T) => void,
  read: (view: DataView) => T,
): FixedField<T> {
  return {
    size,
    encode,
    decode(value) {
      if (value.length < size) throw new Error(`expected ${size} bytes, found ${value.length}`);
      return read(new DataView(value.buffer, value.byteOffset, value.byteLength));
    },
  };
}
