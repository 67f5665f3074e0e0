import { describe, expect, test } from 'bun:test';
import { findSyntaxProblem, placeOf } from '../../../src/cni/json-place.ts';

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
  ])('in %j', (text, line, column, problem) => {
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
  ])('has nothing against %j', text => {
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
  ])('of %j', (path, line, column) => {
    expect(placeOf(text, path)).toEqual({ line, column });
  });

  test('of a repeated key is that of the last', () => {
    expect(placeOf('{"a":1,"a":2}', ['a'])).toEqual({ line: 1, column: 12 });
  });
});
