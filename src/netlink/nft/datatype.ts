// Which types can keys and values of sets have, and how are they encoded?
import { type Ip, ipFromBytes, ipToBytes, renderIp } from '../../net/ip.ts';
import { parseMac, renderMac } from '../../net/mac.ts';
import { align4 } from '../codec/bytes.ts';
import type { ByteOrder } from './userdata.ts';

/** A single value: an IP address, a number, or a text (a name, a hardware address), depending on its type. */
export type FieldValue = Ip | number | string;

interface DataType {
  /** nftables, enum datatypes: nft needs it to print the set. */
  readonly id: number;
  readonly bytes: number;
  readonly order: ByteOrder;
}

/** Types by nft's names. */
const TYPES = {
  nf_proto: { id: 2, bytes: 1, order: 'host' },
  ipv4_addr: { id: 7, bytes: 4, order: 'big' },
  ipv6_addr: { id: 8, bytes: 16, order: 'big' },
  ether_addr: { id: 9, bytes: 6, order: 'big' },
  inet_proto: { id: 12, bytes: 1, order: 'big' },
  inet_service: { id: 13, bytes: 2, order: 'big' },
  mark: { id: 19, bytes: 4, order: 'host' },
  ifname: { id: 41, bytes: 16, order: 'host' },
} as const satisfies Record<string, DataType>;

/** Name of a type. */
export type TypeName = keyof typeof TYPES;

/** One type, or several that form a concatenation (`inet_proto . inet_service`). */
export type TypeNames = readonly [TypeName, ...TypeName[]];

/** nftables, TYPE_BITS: a concatenation's number consists of those of its parts, six bits each. */
const TYPE_BITS = 6;

/** The number of a type or concatenation in `NFTA_SET_KEY_TYPE` and `NFTA_SET_DATA_TYPE`. */
export function typeId(names: TypeNames): number {
  return names.reduce((id, name) => (id << TYPE_BITS) | TYPES[name].id, 0);
}

/** The types that such a number represents; undefined when one of them is unknown. */
export function typeNamesOf(id: number): TypeNames | undefined {
  const names: TypeName[] = [];
  for (let rest = id; rest > 0; rest >>>= TYPE_BITS) {
    const name = TYPE_NAMES.find(one => TYPES[one].id === rest % (1 << TYPE_BITS));
    if (name === undefined) return undefined;
    names.unshift(name);
  }
  const [first, ...more] = names;
  return first && [first, ...more];
}

const TYPE_NAMES = Object.keys(TYPES) as TypeName[];

/** Size in bytes; each part of a concatenation is padded to whole registers. */
export function typeLength(names: TypeNames): number {
  if (names.length === 1) return TYPES[names[0]].bytes;
  return names.reduce((sum, name) => sum + align4(TYPES[name].bytes), 0);
}

/** Byte order that nft is told for the type; a concatenation has none of its own. */
export function typeOrder(names: TypeNames): ByteOrder {
  return names.length === 1 ? TYPES[names[0]].order : 'mixed';
}

/**
 * Encodes a key or value.
 * @throws Error when a value does not fit its type
 */
export function encodeFields(names: TypeNames, values: readonly FieldValue[]): Uint8Array {
  if (values.length !== names.length) {
    throw new Error(`Cannot encode ${names.join(' . ')}: found ${values.length} of ${names.length} values`);
  }
  const all = new Uint8Array(typeLength(names));
  let at = 0;
  for (const [i, name] of names.entries()) {
    all.set(encodeField(name, values[i] ?? 0), at);
    at += align4(TYPES[name].bytes);
  }
  return all;
}

/** Decodes the bytes of a key or value. */
export function decodeFields(names: TypeNames, bytes: Uint8Array): FieldValue[] {
  let at = 0;
  return names.map(name => {
    const own = bytes.subarray(at, at + TYPES[name].bytes);
    at += align4(TYPES[name].bytes);
    return decodeField(name, own);
  });
}

/** Renders `tcp . 8080` without nft's symbolic names: `6 . 8080`. */
export function renderFields(values: readonly FieldValue[]): string {
  return values.map(value => (typeof value === 'object' ? renderIp(value) : String(value))).join(' . ');
}

function encodeField(name: TypeName, value: FieldValue): Uint8Array {
  const { bytes, order } = TYPES[name];
  const encoded =
    typeof value === 'object'
      ? ipToBytes(value)
      : typeof value === 'number'
        ? numberToBytes(value, bytes, order)
        : name === 'ether_addr'
          ? parseMac(value)
          : new TextEncoder().encode(value);
  const fits = name === 'ifname' ? encoded.length < bytes : encoded.length === bytes;
  if (!fits) throw new Error(`Cannot encode ${renderFields([value])} as ${name}: it has the wrong length`);
  return encoded;
}

function decodeField(name: TypeName, bytes: Uint8Array): FieldValue {
  if (name === 'ipv4_addr' || name === 'ipv6_addr') return ipFromBytes(bytes);
  if (name === 'ether_addr') return renderMac(bytes);
  if (name === 'ifname') return new TextDecoder().decode(bytes).replace(/\0.*$/s, '');
  const ordered = TYPES[name].order === 'host' ? bytes.toReversed() : bytes;
  return ordered.reduce((sum, byte) => sum * 256 + byte, 0);
}

function numberToBytes(value: number, bytes: number, order: ByteOrder): Uint8Array {
  const all = new Uint8Array(4);
  new DataView(all.buffer).setUint32(0, value, order === 'host');
  return order === 'host' ? all.subarray(0, bytes) : all.subarray(4 - bytes);
}
