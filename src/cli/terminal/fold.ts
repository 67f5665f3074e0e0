// How does a report fit a terminal that is narrower than its lines?
import { COLOURS } from '../../lab/paint.ts';

/** Lines with a command to copy, and file lists of editors (`file:line:column:`), stay whole. */
const WHOLE = /\b(fix|mend|hint|next): |^\s*(# |catena )/;

/** What a branch of a drawn tree leaves below it. */
const BELOW: Readonly<Record<string, string>> = { '├': '│', '└': ' ', '─': ' ' };

/** The last column of a table is folded in its place if it begins within this part of the line. */
const MOST_OF_LINE = 0.65;

/**
 * Breaks lines between words. What continues stands below the last column of a table, else two columns to the right of the line's
 * beginning; a drawn tree goes on. A word that is wider than the room stays whole, so that it can be copied.
 * @param width columns of the terminal; undefined changes nothing
 */
export function foldText(text: string, width: number | undefined): string {
  if (width === undefined) return text;
  return text
    .split('\n')
    .flatMap(line => foldLine(line, width))
    .join('\n');
}

function foldLine(line: string, width: number): string[] {
  if (lengthOf(line) <= width || WHOLE.test(line.replace(COLOURS, ''))) return [line];
  const indent = indentOf(line.replace(COLOURS, ''), width);
  const lines: string[] = [];
  let current = '';
  // Columns of a table stay apart.
  for (const word of line.split(/(?<=\S) (?=\S)/)) {
    const isFirst = current === '';
    if (!isFirst && lengthOf(current) + 1 + lengthOf(word) > width) {
      lines.push(current);
      current = `${indent}${word}`;
    } else current = isFirst ? word : `${current} ${word}`;
  }
  return [...lines, current];
}

function indentOf(line: string, width: number): string {
  const tree = /^[\s│├└─]*/.exec(line)?.[0] ?? '';
  const columns = [...line.matchAll(/\S {2,}(?=\S)/g)]
    .filter(({ index }) => index >= tree.length)
    .map(({ index, 0: gap }) => index + gap.length);
  const last = columns.findLast(start => start < width * MOST_OF_LINE);
  const start = last ?? Math.min(tree.length + 2, Math.floor(width / 2));
  return [...tree]
    .map(char => BELOW[char] ?? char)
    .join('')
    .padEnd(start)
    .slice(0, start);
}

function lengthOf(text: string): number {
  return text.replace(COLOURS, '').length;
}
