// How are numbers read from the bytes of a message?
//
// Byte by byte: for an attribute of a few bytes, creating a DataView costs ten times as much as reading it.

/** Unsigned, 16 bits, host byte order. */
export function readU16(bytes: Uint8Array, at: number): number {
  return (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
}

/** Unsigned, 32 bits, host byte order. */
export function readU32(bytes: Uint8Array, at: number): number {
  return readS32(bytes, at) >>> 0;
}

/** Signed, 32 bits, host byte order. */
export function readS32(bytes: Uint8Array, at: number): number {
  return readU16(bytes, at) | (readU16(bytes, at + 2) << 16);
}

/** Unsigned, 64 bits, host byte order. */
export function readU64(bytes: Uint8Array, at: number): bigint {
  return BigInt(readU32(bytes, at)) | (BigInt(readU32(bytes, at + 4)) << 32n);
}

/** Unsigned, 16 bits, network byte order. */
export function readU16be(bytes: Uint8Array, at: number): number {
  return ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
}

/** Unsigned, 32 bits, network byte order. */
export function readU32be(bytes: Uint8Array, at: number): number {
  return readS32be(bytes, at) >>> 0;
}

/** Signed, 32 bits, network byte order. */
export function readS32be(bytes: Uint8Array, at: number): number {
  return (readU16be(bytes, at) << 16) | readU16be(bytes, at + 2);
}

/** Unsigned, 64 bits, network byte order. */
export function readU64be(bytes: Uint8Array, at: number): bigint {
  return (BigInt(readU32be(bytes, at)) << 32n) | BigInt(readU32be(bytes, at + 4));
}
