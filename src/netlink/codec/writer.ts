// How do values become the bytes of a netlink message?

/** linux/netlink.h: attributes and messages are padded to four bytes. */
export function align4(length: number): number {
  return (length + 3) & ~3;
}

/** A growing byte buffer in host byte order (little endian on every machine we build for), with lengths patched in. */
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

  u8(value: number): void {
    const at = this.#grow(1);
    this.#view.setUint8(at, value);
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

  /** Zero bytes up to the next multiple of four. */
  pad(): void {
    this.#grow(align4(this.#length) - this.#length);
  }

  /** Overwrites a length field that was left open. */
  patchU16(at: number, value: number): void {
    this.#view.setUint16(at, value, true);
  }

  /** Overwrites a length field that was left open. */
  patchU32(at: number, value: number): void {
    this.#view.setUint32(at, value, true);
  }

  /** Makes room and says where. It may put a new view in place of the old: take `#view` afterwards. */
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
