// How is a value represented of which only some bits are known?

/** Whether a condition holds; `maybe` if it depends on what is not known. */
export type Truth = 'yes' | 'no' | 'maybe';

/** Bytes, and which of their bits are known: a bit that is 0 in `known` may have either value. */
export interface Value {
  readonly bytes: Uint8Array;
  readonly known: Uint8Array;
}

/** A value that is known in full. */
export function certain(bytes: Uint8Array): Value {
  return { bytes, known: new Uint8Array(bytes.length).fill(0xff) };
}

/** A value of which nothing is known. */
export function uncertain(length: number): Value {
  return { bytes: new Uint8Array(length), known: new Uint8Array(length) };
}

/** A number of 1, 2, 4 or 8 bytes in host byte order (little endian); unknown if undefined. */
export function hostNumber(value: number | bigint | undefined, length: number): Value {
  if (value === undefined) return uncertain(length);
  const bytes = new Uint8Array(length);
  for (let i = 0, rest = BigInt(value); i < length; i++, rest >>= 8n) bytes[i] = Number(rest & 0xffn);
  return certain(bytes);
}

/** A number in network byte order; unknown if undefined. */
export function netNumber(value: number | undefined, length: number): Value {
  const { bytes, known } = hostNumber(value, length);
  return { bytes: bytes.toReversed(), known };
}

/** Whether every bit is known. */
export function isCertain({ known }: Value): boolean {
  return known.every(byte => byte === 0xff);
}

/** Whether the value begins with the bytes. */
export function startsWith(value: Value, expected: Uint8Array): Truth {
  let truth: Truth = 'yes';
  for (const [i, want] of expected.entries()) {
    const known = value.known[i] ?? 0;
    if (((value.bytes[i] ?? 0) ^ want) & known) return 'no';
    if (known !== 0xff) truth = 'maybe';
  }
  return truth;
}

/** Order of two byte strings as numbers in network byte order: negative, 0 or positive. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference) return difference;
  }
  return 0;
}

/** The opposite. */
export function not(truth: Truth): Truth {
  return truth === 'maybe' ? truth : truth === 'yes' ? 'no' : 'yes';
}

/** Number in host byte order, or undefined if not all of it is known. */
export function numberOf(value: Value): number | undefined {
  if (!isCertain(value)) return undefined;
  return value.bytes.reduceRight((sum, byte) => sum * 256 + byte, 0);
}
