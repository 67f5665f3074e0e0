// What do the registers of a rule hold, as far as it is known?
import type { Holds } from './iptables.ts';
import type { Byte } from './packet.ts';

/** linux/netfilter/nf_tables.h: four registers of sixteen bytes, or the same in quarters from number 8 on. */
const [REGISTER_BYTES, QUARTER_BYTES, FIRST_QUARTER] = [16, 4, 8];
const TOTAL_BYTES = 64;

/** The registers while a rule is evaluated. */
export class Registers {
  #bytes: Byte[] = [];

  load(register: number, bytes: readonly Byte[]): void {
    const at = offsetOf(register);
    // The kernel fills whole quarters.
    const filled = Math.ceil(bytes.length / QUARTER_BYTES) * QUARTER_BYTES;
    for (let i = 0; i < filled; i++) this.#bytes[at + i] = i < bytes.length ? bytes[i] : 0;
  }

  read(register: number, length: number): Byte[] {
    const at = offsetOf(register);
    return Array.from({ length }, (_, i) => this.#bytes[at + i]);
  }

  /** After an expression that may have written anything. */
  forget(): void {
    this.#bytes = Array.from({ length: TOTAL_BYTES }, () => undefined);
  }
}

function offsetOf(register: number): number {
  if (register >= FIRST_QUARTER) return (register - FIRST_QUARTER) * QUARTER_BYTES;
  return (register - 1) * REGISTER_BYTES;
}

/** Whether the bytes are the value; one that differs is enough to tell that they are not. */
export function equals(bytes: readonly Byte[], value: Uint8Array): Holds {
  const known = [...value].map((byte, i) => (bytes[i] === undefined ? undefined : bytes[i] === byte));
  if (known.includes(false)) return false;
  return known.includes(undefined) ? undefined : true;
}

/** Negative, zero or positive, as numbers in network byte order; undefined if that cannot be told. */
export function compare(bytes: readonly Byte[], value: Uint8Array): number | undefined {
  for (const [i, byte] of value.entries()) {
    const own = bytes[i];
    if (own === undefined) return undefined;
    if (own !== byte) return own - byte;
  }
  return 0;
}

export function not(holds: Holds): Holds {
  return holds === undefined ? undefined : !holds;
}
