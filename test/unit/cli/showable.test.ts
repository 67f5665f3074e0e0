import { expect, test } from 'bun:test';
import { showable } from '../../../src/cli/showable.ts';

test.each([
  ['what moves a cursor', 'a\u001b[2Jb\u001b]0;title\u0007', 'a\\u001b[2Jb\\u001b]0;title\\u0007'],
  ['a line that is written over', 'failed\rdone', 'failed\\u000ddone'],
  ['the same with eight bits', '\u009b2J\u007f', '\\u009b2J\\u007f'],
  ['what turns the direction of writing', 'a\u202eb', 'a\\u202eb'],
])('showable() escapes %s', (_, text, shown) => {
  expect(showable(text)).toBe(shown);
});

test('showable() keeps lines, tabs, letters of any language and colours', () => {
  const text = 'a\tb\né 漢 \u001b[31mred\u001b[0m\n';
  expect(showable(text)).toBe(text);
});

test('showable() keeps the meaning of JSON', () => {
  const value = { msg: '\u001b[2J \u009b \u202e' };
  expect(JSON.parse(showable(JSON.stringify(value)))).toEqual(value);
});
