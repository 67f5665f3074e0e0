import { describe, expect, test } from 'bun:test';
import { excerptOf, foldText } from '../../../../src/cli/terminal/lines.ts';
import { painter } from '../../../../src/lab/words.ts';

const fold = (text: string, width = 40) => foldText(text, width).split('\n');

describe('foldText()', () => {
  test('leaves what fits, and everything without a width', () => {
    const text = `short\n${'x'.repeat(40)}\n`;
    expect(foldText(text, 40)).toBe(text);
    const long = 'word '.repeat(40);
    expect(foldText(long, undefined)).toBe(long);
  });

  test('breaks between words, below the beginning of the sentence', () => {
    expect(fold('  a line of words that is longer than the terminal is wide')).toEqual([
      '  a line of words that is longer than',
      '    the terminal is wide',
    ]);
  });

  test('keeps the last column of a table together', () => {
    expect(fold('bridge   21 ms  a note that needs more than one line')).toEqual([
      'bridge   21 ms  a note that needs more',
      '                than one line',
    ]);
  });

  test('breaks between columns that do not fit beside each other', () => {
    expect(fold(`  ${'n'.repeat(30)}      ignored: no conflist`)).toEqual([
      `  ${'n'.repeat(30)}`,
      '    ignored: no conflist',
    ]);
    expect(fold(`a  b  ${'c'.repeat(38)} d`)).toEqual(['a  b', `  ${'c'.repeat(38)}`, '      d']);
  });

  test('continues a tree', () => {
    const tree = [
      '├─ cni0',
      '│  ├─ shop/web eth0 10.22.0.2/16, veth1, 8080->80',
      '│  └─ shop/db eth0 10.22.0.3/16, veth2, 8081->80',
    ];
    expect(fold(tree.join('\n'))).toEqual([
      '├─ cni0',
      '│  ├─ shop/web eth0 10.22.0.2/16, veth1,',
      '│  │    8080->80',
      '│  └─ shop/db eth0 10.22.0.3/16, veth2,',
      '│       8081->80',
    ]);
  });

  test('leaves commands and long words whole, and does not count colours', () => {
    const lines = [
      `  fix: catena gc --gone --state-dir /var/lib/catena --dry-run`,
      'x'.repeat(60),
      `${painter({ colour: true })('red', 'y'.repeat(38))} z`,
    ];
    expect(fold(lines.join('\n'))).toEqual(lines);
  });

  test('breaks what stands before, behind and between commands', () => {
    const long = 'catena networks --versions podnet --conf-dir /etc/cni';
    expect(fold(`  hint: set "cniVersion" to one that every plugin supports: ${long}`)).toEqual([
      '  hint: set "cniVersion" to one that',
      '    every plugin supports:',
      `    ${long}`,
    ]);
    expect(fold('  fix: chmod +x /opt/cni/bin/portmap, or install the package that has it')).toEqual([
      '  fix: chmod +x /opt/cni/bin/portmap, or',
      '    install the package that has it',
    ]);
    expect(fold('  fix: nft delete chain ip raw PREROUTING && catena repair podnet')).toEqual([
      '  fix: nft delete chain ip raw PREROUTING &&',
      '    catena repair podnet',
    ]);
    expect(fold('next: catena doctor --all  # what else was examined')).toEqual([
      'next: catena doctor --all  # what else',
      '  # was examined',
    ]);
  });

  test('breaks a sentence that begins with the name of a program', () => {
    expect(fold('  podman looks for plugins in "/opt/cni/bin", and not there')).toEqual([
      '  podman looks for plugins in',
      '    "/opt/cni/bin", and not there',
    ]);
  });

  test('keeps the space behind a question', () => {
    expect(foldText(`${'word '.repeat(9)}[free] `, 40)).toBe(`${'word '.repeat(8).trim()}\n  word [free] `);
  });

  test.each([20, 40, 60, 80])('loses no word at %d columns', width => {
    const text =
      '  error    addresses.subnets: subnet 10.22.0.0/16 of network "a" overlaps the route to 10.22.0.0/24';
    const folded = foldText(text, width);
    expect(folded.split(/\s+/)).toEqual(text.split(/\s+/));
    for (const line of folded.split('\n')) expect(line.length).toBeLessThanOrEqual(Math.max(width, 41));
  });
});

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
