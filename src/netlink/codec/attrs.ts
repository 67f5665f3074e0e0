// How is a set of attributes described once and then read and written?
import type { Field } from './fields.ts';
import { align4, type Writer } from './writer.ts';

/** linux/netlink.h */
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;
const NLA_HDRLEN = 4;

/** An attribute that the table does not name. */
export interface RawAttribute {
  readonly type: number;
  readonly bytes: Uint8Array;
}

type Table = Readonly<Record<string, readonly [type: number, field: Field<unknown>]>>;

/** Values of an attribute set; `unknown` holds what newer kernels added. */
export type AttrsOf<T extends Table> = {
  -readonly [K in keyof T]?: T[K][1] extends { decode(bytes: Uint8Array, siblings: object): infer V }
    ? V
    : never;
} & { unknown?: RawAttribute[] };

/** A set of attributes as a field, so that sets nest. */
export interface AttrSet<V> extends Field<V> {
  readonly nested: true;
}

/** Values of an {@link AttrSet}. */
export type ValuesOf<S> = S extends Field<infer V> ? V : never;

/**
 * Describes a set of attributes: readable name to kernel constant and field. Attributes are written in the order in
 * which the value names them. When reading, unknown ones are kept and damaged ones are an error.
 */
export function attrs<const T extends Table>(name: string, table: T): AttrSet<AttrsOf<T>> {
  const byType = new Map(Object.entries(table).map(([key, [type, field]]) => [type, { key, field }]));
  return {
    nested: true,
    encode(writer, values) {
      for (const [key, value] of Object.entries(values)) {
        if (value === undefined || key === 'unknown') continue;
        const row = table[key];
        if (row === undefined) throw new Error(`Cannot encode ${name}: it has no attribute "${key}"`);
        encodeAttribute(writer, row[0], row[1], value, values);
      }
      for (const raw of (values as { unknown?: RawAttribute[] }).unknown ?? []) {
        encodeAttribute(writer, raw.type, RAW, raw.bytes, values);
      }
    },
    decode(bytes) {
      const values: Record<string, unknown> = {};
      const unknown: RawAttribute[] = [];
      for (const attribute of eachAttribute(bytes, name)) {
        const row = byType.get(attribute.type);
        if (row === undefined) unknown.push({ type: attribute.type, bytes: attribute.bytes.slice() });
        else values[row.key] = decodeAttribute(row.field, attribute.bytes, values, `${name}.${row.key}`);
      }
      if (unknown.length) values.unknown = unknown;
      return values as AttrsOf<T>;
    },
  };
}

/** A list in which every element is an attribute of the same type and kind (`NFTA_LIST_ELEM`, action lists count up). */
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
    decode(bytes) {
      return Array.from(eachAttribute(bytes, 'list'), ({ bytes: own }) =>
        decodeAttribute(element, own, {}, 'list'),
      );
    },
  };
}

/**
 * A payload whose layout is named by a text among its siblings: `IFLA_INFO_DATA` by `IFLA_INFO_KIND`, `TCA_OPTIONS` by
 * `TCA_KIND`. Payloads of kinds that the table does not have are kept as bytes.
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
    decode(bytes, siblings) {
      const layout = layoutFor(siblings);
      return (layout ? layout.decode(bytes, siblings) : bytes.slice()) as ValuesOf<T[keyof T]> | Uint8Array;
    },
  };
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

function* eachAttribute(bytes: Uint8Array, name: string): Generator<RawAttribute> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.length - at < NLA_HDRLEN ? 0 : view.getUint16(at, true);
    if (length < NLA_HDRLEN || at + length > bytes.length) {
      throw new Error(
        `Cannot decode ${name}: attribute at byte ${at} claims ${length} of ${bytes.length - at} bytes`,
      );
    }
    const type = view.getUint16(at + 2, true) & NLA_TYPE_MASK;
    yield { type, bytes: bytes.subarray(at + NLA_HDRLEN, at + length) };
    at += align4(length);
  }
}

function decodeAttribute<V>(field: Field<V>, bytes: Uint8Array, siblings: object, where: string): V {
  try {
    return field.decode(bytes, siblings);
  } catch (cause) {
    throw new Error(`Cannot decode ${where}: ${(cause as Error).message}`, { cause });
  }
}
