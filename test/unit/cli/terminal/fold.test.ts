import { describe, expect, test } from 'bun:test';
import { foldText } from '../../../../src/cli/terminal/fold.ts';
import { painter } from '../../../../src/lab/paint.ts';

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

  test.each([20, 40, 60, 80])('loses no word at %d columns', width => {
    const text =
      '  error    addresses.subnets: subnet 10.22.0.0/16 of network "a" overlaps the route to 10.22.0.0/24';
    const folded = foldText(text, width);
    expect(folded.split(/\s+/)).toEqual(text.split(/\s+/));
    for (const line of folded.split('\n')) expect(line.length).toBeLessThanOrEqual(Math.max(width, 41));
  });
});
