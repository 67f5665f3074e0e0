// How are the bytes of a netlink message written and read?

/** linux/netlink.h: attributes and messages are padded to four bytes. */
export function align4(length: number): number {
  return (length + 3) & ~3;
}

/** A growing byte buffer in host byte order (little endian on every supported machine), with length fields patched later. */
export class Writer {
  #bytes = new Uint8Array(512);
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

  /** Discards what was written. */
  clear(): void {
    this.#length = 0;
  }

  u8(value: number): void {
    const at = this.#grow(1);
    this.#bytes[at] = value;
  }

  u16(value: number, bigEndian = false): void {
    const at = this.#grow(2);
    this.#putU16(at, value, bigEndian);
  }

  u32(value: number, bigEndian = false): void {
    const at = this.#grow(4);
    this.#putU32(at, value, bigEndian);
  }

  u64(value: bigint, bigEndian = false): void {
    const at = this.#grow(8);
    const [low, high] = [Number(value & 0xffffffffn), Number((value >> 32n) & 0xffffffffn)];
    this.#putU32(at, bigEndian ? high : low, bigEndian);
    this.#putU32(at + 4, bigEndian ? low : high, bigEndian);
  }

  bytes(value: Uint8Array): void {
    const at = this.#grow(value.length);
    this.#bytes.set(value, at);
  }

  zeros(count: number): void {
    const at = this.#grow(count);
    this.#bytes.fill(0, at, at + count);
  }

  /** Pads with zero bytes to the next multiple of four. */
  pad(): void {
    for (let left = align4(this.#length) - this.#length; left > 0; left--) this.u8(0);
  }

  /** Fills in a length field written earlier. */
  patchU16(at: number, value: number): void {
    this.#putU16(at, value, false);
  }

  /** Fills in a length field written earlier. */
  patchU32(at: number, value: number): void {
    this.#putU32(at, value, false);
  }

  #putU16(at: number, value: number, bigEndian: boolean): void {
    this.#bytes[at] = bigEndian ? value >>> 8 : value;
    this.#bytes[at + 1] = bigEndian ? value : value >>> 8;
  }

  #putU32(at: number, value: number, bigEndian: boolean): void {
    this.#putU16(at, bigEndian ? value >>> 16 : value, bigEndian);
    this.#putU16(at + 2, bigEndian ? value : value >>> 16, bigEndian);
  }

  /** Makes room and returns its offset. May replace the buffer: read `#bytes` only afterwards. */
  #grow(by: number): number {
    const at = this.#length;
    this.#length += by;
    if (this.#length > this.#bytes.length) {
      const bigger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length));
      bigger.set(this.#bytes.subarray(0, at));
      this.#bytes = bigger;
    }
    return at;
  }
}

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
