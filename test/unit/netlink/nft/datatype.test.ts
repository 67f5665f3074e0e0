// Do keys and values become the bytes that nft understands, and back?
import { describe, expect, test } from 'bun:test';
import { parseIp } from '../../../../src/net/ip.ts';
import {
  decodeFields,
  encodeFields,
  type FieldValue,
  renderFields,
  type TypeNames,
  typeId,
  typeLength,
  typeNamesOf,
  typeOrder,
} from '../../../../src/netlink/nft/datatype.ts';

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
