// What do the registers hold while a rule is evaluated?
import { uncertain, type Value } from './value.ts';

/** linux/netfilter/nf_tables.h: NFT_REG_1 to _4 have 16 bytes, NFT_REG32_00 to _15 four; they share the same memory. */
const BYTES = 64;

/** The registers of one rule. Nothing is known about them before something is loaded. */
export class Registers {
  #bytes: Uint8Array = new Uint8Array(BYTES);
  #known: Uint8Array = new Uint8Array(BYTES);

  /** Stores a value; the kernel fills its last four bytes with zeros. */
  load(register: number, { bytes, known }: Value): void {
    const at = offsetOf(register);
    const end = at + Math.ceil(bytes.length / 4) * 4;
    this.#bytes.fill(0, at, end);
    this.#known.fill(0xff, at, end);
    this.#bytes.set(bytes, at);
    this.#known.set(known, at);
  }

  read(register: number, length: number): Value {
    const at = offsetOf(register);
    return { bytes: this.#bytes.slice(at, at + length), known: this.#known.slice(at, at + length) };
  }

  /** Something unknown was loaded somewhere. */
  forget(): void {
    const { bytes, known } = uncertain(BYTES);
    this.#bytes = bytes;
    this.#known = known;
  }
}

function offsetOf(register: number): number {
  return register <= 4 ? (register - 1) * 16 : (register - 8) * 4;
}
