// Are comments kept where nft looks for them?

import { describe, expect, test } from 'bun:test';
import { parseIp } from '../../../../src/net/ip.ts';
import { Writer } from '../../../../src/netlink/codec.ts';
import {
  comment,
  decodeFields,
  encodeFields,
  type FieldValue,
  renderFields,
  setUserdata,
  type TypeNames,
  typeId,
  typeLength,
  typeNamesOf,
  typeOrder,
} from '../../../../src/netlink/nft/table.ts';

describe('comment', () => {
  test('is an entry of type 0 with a terminating zero', () => {
    expect(encoded('hi')).toEqual([0, 3, 0x68, 0x69, 0]);
    expect(comment.decode(Uint8Array.of(0, 3, 0x68, 0x69, 0), {})).toBe('hi');
  });

  test('is found behind entries of other types, and is empty when absent', () => {
    expect(comment.decode(Uint8Array.of(4, 2, 9, 9, 0, 2, 0x78, 0), {})).toBe('x');
    expect(comment.decode(Uint8Array.of(4, 2, 9, 9), {})).toBe('');
  });

  test('is refused when the kernel could not keep it', () => {
    expect(encoded('x'.repeat(253))).toHaveLength(256);
    expect(() => encoded('x'.repeat(254))).toThrow('the kernel keeps 253 bytes at most');
  });
});

test('setUserdata() sets the order in which nft prints keys and data', () => {
  expect(Array.from(setUserdata('big'))).toEqual([0, 4, 2, 0, 0, 0]);
  expect(Array.from(setUserdata('host', 'mixed'))).toEqual([0, 4, 1, 0, 0, 0, 1, 4, 0, 0, 0, 0]);
});

function encoded(text: string): number[] {
  const writer = new Writer();
  comment.encode(writer, text, {});
  return Array.from(writer.finish());
}

describe('typeNamesOf()', () => {
  test.each<[TypeNames]>([
    [['ipv4_addr']],
    [['inet_proto', 'inet_service']],
    [['ifname', 'ipv6_addr', 'mark']],
  ])('returns the names for the number of %j', names => expect(typeNamesOf(typeId(names))).toEqual(names));

  test('returns nothing for unknown types', () => {
    expect([typeNamesOf(0), typeNamesOf(5), typeNamesOf((5 << 6) | 7)]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });
});

describe('typeId()', () => {
  test('of one type is its number', () => {
    expect(typeId(['ipv4_addr'])).toBe(7);
  });

  test('of a concatenation has six bits for each', () => {
    expect(typeId(['inet_proto', 'inet_service'])).toBe((12 << 6) | 13);
    expect(typeId(['ipv4_addr', 'inet_proto', 'inet_service'])).toBe((7 << 12) | (12 << 6) | 13);
  });
});

describe('typeLength()', () => {
  test('of one type is exact', () => {
    expect(typeLength(['inet_service'])).toBe(2);
    expect(typeLength(['ifname'])).toBe(16);
  });

  test('of a concatenation counts whole registers', () => {
    expect(typeLength(['inet_proto', 'inet_service'])).toBe(8);
    expect(typeLength(['ipv6_addr', 'inet_service'])).toBe(20);
  });
});

test('typeOrder() knows one order for one type, none for several', () => {
  expect([typeOrder(['ipv4_addr']), typeOrder(['mark']), typeOrder(['mark', 'mark'])]).toEqual([
    'big',
    'host',
    'mixed',
  ]);
});

describe('encodeFields() and decodeFields()', () => {
  const cases: [TypeNames, FieldValue[], number[]][] = [
    [['inet_service'], [8080], [0x1f, 0x90]],
    [['inet_proto'], [17], [17]],
    [['mark'], [0x2000], [0, 0x20, 0, 0]],
    [['ipv4_addr'], [parseIp('10.9.0.2')], [10, 9, 0, 2]],
    [['ifname'], ['eth0'], [0x65, 0x74, 0x68, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
    [
      ['inet_proto', 'inet_service'],
      [6, 80],
      [6, 0, 0, 0, 0, 80, 0, 0],
    ],
    [
      ['ipv4_addr', 'inet_service'],
      [parseIp('10.9.0.2'), 80],
      [10, 9, 0, 2, 0, 80, 0, 0],
    ],
  ];
  test.each(cases)('%j', (types, values, bytes) => {
    expect(Array.from(encodeFields(types, values))).toEqual(bytes);
    expect(decodeFields(types, Uint8Array.from(bytes))).toEqual(values);
  });

  test('refuse values of the wrong number or size', () => {
    expect(() => encodeFields(['inet_proto', 'inet_service'], [6])).toThrow('found 1 of 2 values');
    expect(() => encodeFields(['ipv4_addr'], [parseIp('fd00::2')])).toThrow(
      'Cannot encode fd00::2 as ipv4_addr: it has the wrong length',
    );
    expect(() => encodeFields(['ifname'], ['a name that is long'])).toThrow('wrong length');
  });
});

test('renderFields() joins values as nft does', () => {
  expect(renderFields([parseIp('fd00::2'), 6, 80, 'eth0'])).toBe('fd00::2 . 6 . 80 . eth0');
});
