// How is a set of attributes described once, for both reading and writing?
import { decodePart, type Field } from './fields.ts';
import { readU16 } from './reader.ts';
import { align4, type Writer } from './writer.ts';

/** linux/netlink.h */
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;
const NLA_HDRLEN = 4;

/** An attribute that is not in the table. */
export interface RawAttribute {
  readonly type: number;
  readonly bytes: Uint8Array;
}

type Table = Readonly<Record<string, readonly [type: number, field: Field<unknown>]>>;

/** Values of an attribute set; `unknown` holds attributes that newer kernels added. */
export type AttrsOf<T extends Table> = {
  -readonly [K in keyof T]?: T[K][1] extends { decode(bytes: Uint8Array, siblings: object): infer V }
    ? V
    : never;
} & { unknown?: RawAttribute[] };

/** A set of attributes as a field, so that sets can be nested. */
export interface AttrSet<V> extends Field<V> {
  readonly nested: true;
}

/** Values of an {@link AttrSet}. */
export type ValuesOf<S> = S extends Field<infer V> ? V : never;

/**
 * Describes a set of attributes: each readable name with its kernel constant and field. Attributes are written in the order
 * of the value's keys. When reading, unknown attributes are kept and damaged ones are an error.
 */
export function attrs<const T extends Table>(name: string, table: T): AttrSet<AttrsOf<T>> {
  const byType = new Map(Object.entries(table).map(([key, [type, field]]) => [type, { key, field }]));
  return {
    nested: true,
    encode(writer, values) {
      for (const key of Object.keys(values)) {
        const value = (values as Record<string, unknown>)[key];
        if (value === undefined || key === 'unknown') continue;
        const row = table[key];
        if (row === undefined) throw new Error(`Cannot encode ${name}: it has no attribute "${key}"`);
        encodeAttribute(writer, row[0], row[1], value, values);
      }
      for (const raw of (values as { unknown?: RawAttribute[] }).unknown ?? []) {
        encodeAttribute(writer, raw.type, RAW, raw.bytes, values);
      }
    },
    decode: bytes => decodeSet(name, byType, bytes, 0, bytes.length) as AttrsOf<T>,
    decodeAt: (bytes, from, to) => decodeSet(name, byType, bytes, from, to) as AttrsOf<T>,
  };
}

/** A list whose elements are attributes of the same type and kind (`NFTA_LIST_ELEM`; the types of action lists count up). */
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
    decode: bytes => decodeList(element, bytes, 0, bytes.length),
    decodeAt: (bytes, from, to) => decodeList(element, bytes, from, to),
  };
}

/**
 * A payload whose layout is selected by a sibling text: `IFLA_INFO_DATA` by `IFLA_INFO_KIND`, `TCA_OPTIONS` by `TCA_KIND`.
 * Payloads of kinds that are not in the table are kept as bytes.
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
    decode: (bytes, siblings) => decodeAs(layoutFor(siblings), bytes, 0, bytes.length, siblings),
    decodeAt: (bytes, from, to, siblings) => decodeAs(layoutFor(siblings), bytes, from, to, siblings),
  };

  function decodeAs(
    layout: Field<unknown> | undefined,
    bytes: Uint8Array,
    from: number,
    to: number,
    siblings: object,
  ): ValuesOf<T[keyof T]> | Uint8Array {
    const value = layout ? decodePart(layout, bytes, from, to, siblings) : bytes.slice(from, to);
    return value as ValuesOf<T[keyof T]> | Uint8Array;
  }
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

type Rows = ReadonlyMap<number, { readonly key: string; readonly field: Field<unknown> }>;

function decodeSet(name: string, rows: Rows, bytes: Uint8Array, from: number, to: number): object {
  const values: Record<string, unknown> = {};
  let unknown: number[] | undefined;
  for (let at = from; at < to; ) {
    const end = at + lengthAt(name, bytes, at, from, to);
    const type = readU16(bytes, at + 2) & NLA_TYPE_MASK;
    const row = rows.get(type);
    if (row === undefined) {
      unknown ??= [];
      unknown.push(type, at + NLA_HDRLEN, end);
    } else {
      values[row.key] = decodeAttribute(row.field, bytes, at + NLA_HDRLEN, end, values, name, row.key);
    }
    at += align4(end - at);
  }
  if (unknown !== undefined) keepUnknown(values, bytes, unknown);
  return values;
}

function decodeList<V>(element: Field<V>, bytes: Uint8Array, from: number, to: number): V[] {
  const values: V[] = [];
  for (let at = from; at < to; ) {
    const end = at + lengthAt('list', bytes, at, from, to);
    values.push(decodeAttribute(element, bytes, at + NLA_HDRLEN, end, {}, 'list'));
    at += align4(end - at);
  }
  return values;
}

/** Length of the attribute at an offset, including its header, without its padding. */
function lengthAt(name: string, bytes: Uint8Array, at: number, from: number, to: number): number {
  const length = to - at < NLA_HDRLEN ? 0 : readU16(bytes, at);
  if (length >= NLA_HDRLEN && at + length <= to) return length;
  throw new Error(
    `Cannot decode ${name}: attribute at byte ${at - from} claims ${length} of ${to - at} bytes`,
  );
}

/** A link alone has forty attributes that are rarely used, so unknown attributes are copied out only on first access. */
function keepUnknown(values: object, bytes: Uint8Array, places: readonly number[]): void {
  let found: RawAttribute[] | undefined;
  const get = (): RawAttribute[] => {
    if (found) return found;
    found = [];
    for (let i = 0; i < places.length; i += 3) {
      found.push({ type: places[i] ?? 0, bytes: bytes.slice(places[i + 1], places[i + 2]) });
    }
    return found;
  };
  Object.defineProperty(values, 'unknown', { enumerable: true, configurable: true, get });
}

function decodeAttribute<V>(
  field: Field<V>,
  bytes: Uint8Array,
  from: number,
  to: number,
  siblings: object,
  name: string,
  key?: string,
): V {
  try {
    return decodePart(field, bytes, from, to, siblings);
  } catch (cause) {
    const where = key === undefined ? name : `${name}.${key}`;
    throw new Error(`Cannot decode ${where}: ${(cause as Error).message}`, { cause });
  }
}
