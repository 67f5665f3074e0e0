import { describe, expect, test } from 'bun:test';
import * as z from 'zod/mini';
import {
  checkObject,
  decode,
  decodeFor,
  defined,
  didYouMean,
  editDistance,
  findNearest,
  foldKeys,
  isObject,
  LineSplitter,
  memberOf,
  parseObject,
} from '../../../src/cni/json.ts';

test('defined() keeps every value but undefined, in order', () => {
  const members = { a: 0, b: undefined, c: '', d: null, e: false, f: [] };
  const kept = defined(members);
  expect(Object.entries(kept)).toEqual([
    ['a', 0],
    ['c', ''],
    ['d', null],
    ['e', false],
    ['f', []],
  ]);
  expect('b' in kept).toBe(false);
});

test('isObject() accepts objects only', () => {
  expect([{}, JSON.parse('{"__proto__":1}')].every(isObject)).toBe(true);
  expect([null, [], 'x', 1, true, undefined].some(isObject)).toBe(false);
});

describe('parseObject()', () => {
  test('returns the object', () => {
    expect(parseObject('{"a":[1]}', 'x')).toEqual({ a: [1] });
  });

  test.each([
    ['', 'Cannot decode the thing: '],
    ['{', 'Cannot decode the thing: '],
    ['{} {}', 'Cannot decode the thing: '],
    ['null', 'expected a JSON object, found null'],
    ['[]', 'expected a JSON object, found an array'],
    ['"x"', 'expected a JSON object, found a string'],
  ])('refuses %j with code 6', (text, message) => {
    expect(() => parseObject(text, 'the thing')).toThrow(
      expect.objectContaining({ code: 6, message: expect.stringContaining(message) }),
    );
  });
});

const Port = z.object({
  hostPort: z.int().check(z.minimum(1), z.maximum(65535)),
  protocol: z.optional(z.enum(['tcp', 'udp'])),
});
const Conf = z.looseObject({
  type: z.string(),
  ports: z.optional(z.array(Port)),
  flags: z.optional(z.record(z.string(), z.boolean())),
});

describe('foldKeys()', () => {
  test('gives keys the spelling of the schema, at every depth', () => {
    const value = { Type: 't', PORTS: [{ HostPort: 1, PROTOCOL: 'tcp' }], Flags: { Kept: true } };
    expect(foldKeys(Conf, value)).toEqual({
      type: 't',
      ports: [{ hostPort: 1, protocol: 'tcp' }],
      flags: { Kept: true },
    });
  });

  test('prefers the exact key to a folded one, in any order', () => {
    expect(foldKeys(Conf, { TYPE: 'a', type: 'b' })).toEqual({ type: 'b' });
    expect(foldKeys(Conf, { type: 'b', TYPE: 'a' })).toEqual({ type: 'b' });
  });

  test('keeps unknown keys, and drops null of known ones', () => {
    const value = JSON.parse('{"type":"t","Other":null,"ports":null,"__proto__":{"x":1}}');
    const folded = foldKeys(Conf, value) as object;
    expect(JSON.stringify(folded)).toBe('{"type":"t","Other":null,"__proto__":{"x":1}}');
    expect(Object.getPrototypeOf(folded)).toBe(Object.prototype);
  });
});

describe('decode()', () => {
  test('returns the value with its unknown keys', () => {
    expect(decode(Conf, { Type: 't', more: 1 }, 'x')).toEqual({ type: 't', more: 1 });
  });

  test.each([
    [{}, '"type" must be of type string, it is missing'],
    [{ type: 1 }, '"type" must be of type string, found 1'],
    [{ type: 't', ports: [{ hostPort: 0 }] }, '"ports[0].hostPort" must be at least 1, found 0'],
    [{ type: 't', ports: [{ hostPort: 70000 }] }, '"ports[0].hostPort" must be at most 65535, found 70000'],
    [
      { type: 't', ports: [{ hostPort: 1, protocol: 'x' }] },
      '"ports[0].protocol" must be one of "tcp", "udp", found "x"',
    ],
    [{ type: 't', ports: 'x' }, '"ports" must be of type array, found "x"'],
    [{ type: 't', flags: { a: 1 } }, '"flags.a" must be of type boolean, found 1'],
    [[], 'must be of type object, found []'],
  ])('refuses %j', (value, message) => {
    expect(() => decode(Conf, value, 'the thing')).toThrow(
      expect.objectContaining({ code: 7, message: `Cannot use the thing: ${message}` }),
    );
  });

  test('names every problem, with the given code', () => {
    expect(() => decode(Conf, { type: 1, ports: 2 }, 'x', 2)).toThrow(
      expect.objectContaining({ code: 2, message: expect.stringMatching(/"type" .*; "ports" /) }),
    );
  });
});

describe('decodeFor()', () => {
  const decodeIt = (command: string, value: unknown) => decodeFor(command, Conf, value, 'the thing');

  test.each([
    [{ type: 't', more: 1 }, { type: 't', more: 1 }, []],
    [
      { Type: 't', ports: 'x', Other: 2 },
      { type: 't', Other: 2 },
      ['"ports" must be of type array, found "x"'],
    ],
    [
      { type: 't', flags: { a: 1, b: true } },
      { type: 't', flags: { b: true } },
      ['"flags.a" must be of type boolean, found 1'],
    ],
    [
      { type: 't', ports: [{ hostPort: 1 }, { hostPort: 2, protocol: 'x' }] },
      { type: 't', ports: [{ hostPort: 1 }, { hostPort: 2 }] },
      ['"ports[1].protocol" must be one of "tcp", "udp", found "x"'],
    ],
    [
      { type: 't', ports: [{ hostPort: 0 }, 5] },
      { type: 't' },
      ['"ports[0].hostPort" must be at least 1, found 0', '"ports[1]" must be of type object, found 5'],
    ],
  ])('of %j, DEL takes what is valid', (value, conf, problems) => {
    const before = JSON.stringify(value);
    expect(decodeIt('DEL', value)).toEqual({ conf, problems } as ReturnType<typeof decodeIt>);
    expect(JSON.stringify(value)).toBe(before);
    if (problems.length > 0) expect(() => decodeIt('ADD', value)).toThrow(problems[0]);
  });

  test('DEL refuses a value of which nothing is valid', () => {
    for (const value of [{ type: 1 }, { ports: 'x' }, []])
      expect(() => decodeIt('DEL', value)).toThrow(expect.objectContaining({ code: 7 }));
  });
});

test('memberOf() finds a key in any letter case, the exact one first', () => {
  expect(memberOf({ TYPE: 'a', type: 'b' }, 'type')).toBe('b');
  expect(memberOf({ Type: 'a', TYPE: 'b' }, 'type')).toBe('b');
  expect(memberOf({ type: null, x: 1 }, 'type')).toBeUndefined();
  expect(memberOf({}, 'toString')).toBeUndefined();
});

test('checkObject() returns the folded value itself', () => {
  const value = JSON.parse('{"TYPE":"t","mine":1,"__proto__":{"x":1}}');
  expect(JSON.stringify(checkObject(Conf, value, 'x', 7))).toBe('{"type":"t","mine":1,"__proto__":{"x":1}}');
  expect(() => checkObject(Conf, {}, 'the thing', 6)).toThrow(expect.objectContaining({ code: 6 }));
});

describe('editDistance()', () => {
  test.each([
    ['', '', 0],
    ['mtu', 'mtu', 0],
    ['', 'mtu', 3],
    ['mtu', '', 3],
    ['mtuu', 'mtu', 1],
    ['bridg', 'bridge', 1],
    ['bandwitdh', 'bandwidth', 1],
    ['isGatway', 'isGateway', 1],
    ['kitten', 'sitting', 3],
    ['ab', 'ba', 1],
  ])('of %j and %j is %d', (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
    expect(editDistance(b, a)).toBe(distance);
  });
});

describe('findNearest()', () => {
  const known = ['mtu', 'bridge', 'isGateway', 'isDefaultGateway', 'ipMasq', 'ipam', 'dns'];

  test.each([
    ['isgateway', 'isGateway'],
    ['isGatewy', 'isGateway'],
    ['isDefaultGatway', 'isDefaultGateway'],
    ['ipmask', 'ipMasq'],
    ['bridgee', 'bridge'],
    ['mtuu', 'mtu'],
    ['ipma', 'ipam'],
  ])('finds for %s the name %s', (word, expected) => {
    expect(findNearest(word, known)).toBe(expected);
  });

  test.each(['vlanTrunk', 'x', 'comment', 'hairpin'])('finds nothing similar to %s', word => {
    expect(findNearest(word, known)).toBeUndefined();
  });
});

test('didYouMean() returns a clause to append, or nothing', () => {
  expect(didYouMean('mtuu', ['mtu'])).toBe('; did you mean "mtu"?');
  expect(didYouMean('colour', ['mtu'])).toBe('');
});

describe('LineSplitter', () => {
  test('push() returns lines when they are complete, however they arrive', () => {
    const lines = new LineSplitter();
    const bytes = Buffer.from('{"a":"ä"}\n{"b":1}\n\n{"c":2');
    const found: string[] = [];
    for (const byte of bytes) found.push(...lines.push(Uint8Array.of(byte)));
    expect(found).toEqual(['{"a":"ä"}', '{"b":1}', '']);
    expect(lines.push(Buffer.from('}\n'))).toEqual(['{"c":2}']);
  });

  test('push() returns several lines of one chunk', () => {
    expect(new LineSplitter().push(Buffer.from('1\n2\n3'))).toEqual(['1', '2']);
  });

  test('push() refuses a line that is too long, also an unfinished one', () => {
    const lines = new LineSplitter(3);
    expect(lines.push(Buffer.from('123\n12'))).toEqual(['123']);
    expect(() => lines.push(Buffer.from('34'))).toThrow('too long');
  });
});
