// Are the carets below what they are about, whatever the line is made of?
import { expect, test } from 'bun:test';
import { excerptOf } from '../../../../src/cli/terminal/excerpt.ts';

/** What the carets are below, counted in columns of a terminal. */
function marked(text: string, column: number, width = 80): string {
  const [line, carets] = excerptOf({ text, line: 7, column, width });
  for (const one of [line, carets]) expect(Bun.stringWidth(one)).toBeLessThanOrEqual(Math.max(width, 28));
  const [from, to] = [carets.indexOf('^'), carets.lastIndexOf('^') + 1];
  let [at, found] = [0, ''];
  for (const { segment } of new Intl.Segmenter().segment(line)) {
    if (at >= from && at < to) found += segment;
    at += Bun.stringWidth(segment);
  }
  return found;
}

test.each([
  ['{ "mtu": "1400", "x": 1 }', 10, '"1400"'],
  ['{ "mtu": "1400", "x": 1 }', 3, '"mtu"'],
  ['{ "a": "say \\"so\\"" }', 8, '"say \\"so\\""'],
  ['{ "mtu": -1.5e3 }', 10, '-1.5e3'],
  ['{ "ok": true }', 9, 'true'],
  ['{ "ipam": { } }', 11, '{'],
  ['\t\t"mtu": 9', 10, '9'],
  ['{ "名前": "値" }', 9, '"値"'],
  ['{ "a": "open', 8, '"open'],
  ['{ "é": 👍 }', 8, '👍'],
])('%p at %p: %p', (text, column, expected) => {
  expect(marked(text, column)).toBe(expected);
});

test('the end of a line is marked, too', () => {
  expect(excerptOf({ text: '{ "a": 1', line: 12, column: 9, width: 80 })).toEqual([
    '   12 | { "a": 1',
    '      |         ^',
  ]);
});

test.each([28, 40, 60, 80, 120])('a long line is cut to %p columns around the value', width => {
  const text = `{ ${'"filler": 1, '.repeat(40)}"mtu": "1400", ${'"filler": 1, '.repeat(40)}"end": 2 }`;
  expect(marked(text, text.indexOf('"1400"') + 1, width)).toBe('"1400"');
  expect(marked(text, 3, width)).toBe('"filler"');
  expect(marked(text, text.lastIndexOf('2') + 1, width)).toBe('2');
});
