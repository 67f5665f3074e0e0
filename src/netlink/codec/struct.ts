// How is a fixed C struct described once, for both reading and writing?
import { decodePart, type FixedField } from './fields.ts';
import type { Writer } from './writer.ts';

type Layout = readonly (readonly [name: string, field: FixedField<unknown>])[];

/** A C struct as a field: usable as a message header, as an attribute's payload and inside other structs. */
export interface Struct<V> {
  readonly size: number;
  /** All fields zero; spread it to fill irrelevant fields. */
  readonly zero: V;
  encode(writer: Writer, value: Partial<V>, siblings?: object): void;
  decode(bytes: Uint8Array, siblings?: object): V;
  decodeAt(bytes: Uint8Array, from: number, to: number): V;
}

/** Every field of the layout except those named `_…`, which are padding. */
type ValuesOf<L extends Layout> = {
  -readonly [E in L[number] as E[0] extends `_${string}` ? never : E[0]]: E[1] extends {
    decode(bytes: Uint8Array, siblings: object): infer T;
  }
    ? T
    : never;
};

/**
 * Describes a struct: its fields in order, with padding as explicit fields named `_pad…`. Fields left out when encoding are
 * zero. Input longer than the struct is accepted (newer kernels append fields), shorter input is not.
 */
export function struct<const L extends Layout>(name: string, layout: L): Struct<ValuesOf<L>> {
  const size = layout.reduce((sum, [, field]) => sum + field.size, 0);
  const decodeAt = (bytes: Uint8Array, from: number, to: number): ValuesOf<L> => {
    if (to - from < size) throw new Error(`struct ${name}: expected ${size} bytes, found ${to - from}`);
    const values: Record<string, unknown> = {};
    let at = from;
    for (const [key, field] of layout) {
      if (!key.startsWith('_')) values[key] = decodePart(field, bytes, at, at + field.size, values);
      at += field.size;
    }
    return values as ValuesOf<L>;
  };
  const decode = (bytes: Uint8Array): ValuesOf<L> => decodeAt(bytes, 0, bytes.length);
  return {
    size,
    zero: decode(new Uint8Array(size)),
    decode,
    decodeAt,
    encode(writer: Writer, value: Partial<ValuesOf<L>>) {
      const given: Record<string, unknown> = value;
      for (const [key, field] of layout) {
        if (given[key] === undefined) writer.zeros(field.size);
        else field.encode(writer, given[key], given);
      }
    },
  };
}
