import { describe, expect, test } from 'bun:test';
import { findSyntaxProblem, placeOf, readPlaces } from '../../../src/cni/json-place.ts';

describe('findSyntaxProblem()', () => {
  test.each([
    ['', 1, 1, 'expected a value, found the end of the text'],
    ['{', 1, 2, 'expected a key in double quotes, found the end of the text'],
    ['{"a" 1}', 1, 6, 'expected ":" after the key, found "1"'],
    ['{"a": }', 1, 7, 'expected a value, found "}"'],
    ['{"a": 1 "b": 2}', 1, 9, 'expected "," or "}", found "\\""'],
    ['{"a": 1,}', 1, 9, 'expected a key in double quotes, found "}"'],
    ['[1 2]', 1, 4, 'expected "," or "]", found "2"'],
    ['[1,]', 1, 4, 'expected a value, found "]"'],
    ['{\n  "a": 1,\n  b: 2\n}', 3, 3, 'expected a key in double quotes, found "b"'],
    ['{"a": "x\ny"}', 1, 9, 'expected the end of the string, found "\\n"'],
    ['{"a": "\\x"}', 1, 8, 'expected a valid escape, found "\\\\"'],
    ['{"a": "x', 1, 9, 'expected the end of the string, found the end of the text'],
    ['{} x', 1, 4, 'expected the end of the document, found "x"'],
    ['01', 1, 2, 'expected the end of the document, found "1"'],
    ['NaN', 1, 1, 'expected a value, found "N"'],
    ['// c\n{}', 1, 1, 'expected a value, found "/"'],
    ["{'a': 1}", 1, 2, 'expected a key in double quotes, found "\'"'],
  ])('finds the error in %j', (text, line, column, problem) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(findSyntaxProblem(text)).toEqual({ line, column, problem });
  });

  test.each([
    ...[
      '{}',
      '[]',
      ' null ',
      '-0.5e+10',
      '"\\u00e4\\n\\/"',
      '{"a":[{"b":[]},[[]]],"c":"d"}',
      '\r\n\t[true, false]',
    ],
  ])('accepts %j', text => {
    JSON.parse(text);
    expect(findSyntaxProblem(text)).toBeUndefined();
  });
});

describe('placeOf()', () => {
  const text =
    '{\n  "name": "n",\n  "plugins": [\n    {"type": "a"},\n    {"type": "b", "x": {"y": 1}}\n  ]\n}';

  test.each([
    [[], 1, 1],
    [['name'], 2, 11],
    [['plugins'], 3, 14],
    [['plugins', 0], 4, 5],
    [['plugins', 1, 'x', 'y'], 5, 30],
    [['plugins', 1, 'missing', 'deeper'], 5, 5],
    [['nowhere'], 1, 1],
  ])('returns the position of %j', (path, line, column) => {
    expect(placeOf(text, path)).toEqual({ line, column });
  });

  test('returns the last position of a repeated key', () => {
    expect(placeOf('{"a":1,"a":2}', ['a'])).toEqual({ line: 1, column: 12 });
  });
});

test('findSyntaxProblem() stops at an absurd depth', () => {
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;
  expect(findSyntaxProblem(nested(1000))).toBeUndefined();
  expect(findSyntaxProblem(nested(100_000))).toEqual({
    line: 1,
    column: 1002,
    problem: 'expected at most 1000 levels, found "["',
  });
});

describe('readPlaces()', () => {
  const text = '{\n  "a": 1,\n  "b": [ { "c": "}" }, 2 ],\n "a":  3\n}';
  const places = readPlaces(text);

  test('returns where values and keys start', () => {
    expect(places.valueAt([])).toEqual({ line: 1, column: 1 });
    expect(places.keyAt(['b'])).toEqual({ line: 3, column: 3 });
    expect(places.valueAt(['b'])).toEqual({ line: 3, column: 8 });
    expect(places.keyAt(['b', 0, 'c'])).toEqual({ line: 3, column: 12 });
    expect(places.valueAt(['b', 0, 'c'])).toEqual({ line: 3, column: 17 });
    expect(places.keyAt(['b', 1])).toEqual(places.valueAt(['b', 1]));
  });

  test('uses the last of a repeated key, and reports the repetition', () => {
    expect(places.valueAt(['a'])).toEqual({ line: 4, column: 8 });
    expect(places.repeated).toEqual([{ key: 'a', line: 4, column: 2 }]);
    expect(readPlaces('[{"a":1},{"a":2},[1,1]]').repeated).toEqual([]);
  });

  test('returns the nearest existing ancestor of an absent path', () => {
    expect(places.keyAt(['b', 0, 'x', 'y'])).toEqual(places.valueAt(['b', 0]));
    expect(places.valueAt(['x'])).toEqual({ line: 1, column: 1 });
  });
});
