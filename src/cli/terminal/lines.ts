// How does a report fit a terminal that is narrower than its lines?
import { COLOURS, type Style } from '../../lab/words.ts';
import type { CommandCall } from '../command.ts';

/** A command to copy, from its program to its end. Elsewhere a program's name may begin a sentence. */
const COMMAND =
  '(?:(?<=^\\s*|: )catena|(?<=^\\s*)(?:fix|mend|next): PROGRAM|(?<=&& )PROGRAM)(?= [-\\w/])(?: (?!# |or |then |&& )\\S+)+(?: &&)?'.replaceAll(
    'PROGRAM',
    '(?:catena|chmod|chown|conntrack|ip|iptables|ip6tables|kill|kubectl|mount|nft|nsenter|podman|sysctl|systemctl|tc)',
  );

/**
 * A word, and the spaces before it. A command to copy is one word, with `fix:` before it; what explains it is not, nor is a second
 * command: a shell reads on after `&&`.
 */
const WORD = new RegExp(`(\\s*)(${COMMAND}|\\S+)`, 'g');

/** What a branch of a drawn tree leaves below it. */
const BELOW: Readonly<Record<string, string>> = { '├': '│', '└': ' ', '─': ' ' };

const TREE = /^[\s│├└─]*/;

/** The last column of a table is folded in its place if it begins within this part of the line. */
const MOST_OF_LINE = 0.65;

/**
 * Breaks lines between words. What continues stands below the last column of a table, else two columns to the right of the line's
 * beginning; a drawn tree and a comment go on. A command, and a word that is wider than the room, stay whole, so that they can be copied.
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
  if (lengthOf(line) <= width) return [line];
  const [indent, least] = indentsOf(line.replace(COLOURS, ''), width);
  const lines: string[] = [];
  const [tree = ''] = TREE.exec(line) ?? [];
  let current = tree;
  let comment = '';
  // Columns of a table stay apart as long as they fit.
  for (const [, gap = '', word = ''] of line.slice(tree.length).matchAll(WORD)) {
    if (current !== tree && lengthOf(current) + gap.length + lengthOf(word) > width) {
      lines.push(current);
      const begin = indent.length + lengthOf(word) > width ? least : indent;
      current = `${comment === '' ? begin : `${least}${comment}`}${word}`;
    } else current = `${current}${gap}${word}`;
    if (word === '#') comment = '# ';
  }
  return [...lines, `${current}${/\s*$/.exec(line)?.[0] ?? ''}`];
}

/** Of the lines that continue a line, and of those whose word has no room there. */
function indentsOf(line: string, width: number): readonly [string, string] {
  const tree = TREE.exec(line)?.[0] ?? '';
  const columns = [...line.matchAll(/\S {2,}(?=\S)/g)]
    .filter(({ index }) => index >= tree.length)
    .map(({ index, 0: gap }) => index + gap.length);
  const last = columns.findLast(start => start < width * MOST_OF_LINE);
  const least = Math.min(tree.length + 2, Math.floor(width / 2));
  const below = [...tree].map(char => BELOW[char] ?? char).join('');
  const indents = [last ?? least, least].map(start => below.padEnd(start).slice(0, start));
  return indents as [string, string];
}

function lengthOf(text: string): number {
  return text.replace(COLOURS, '').length;
}

/** No text is broken into narrower lines, however narrow the terminal is. */
const LEAST = 20;

/**
 * Breaks a text between words. A word that is wider than a line has a line of its own, so that it can still be copied.
 * @param width columns of a line
 * @param first what the first line begins with
 * @param indent what the others begin with; two columns more than the first by default
 */
export function wrap(text: string, width: number, first = '', indent = `${first}  `): string[] {
  const limit = Math.max(width, indent.length + LEAST);
  const lines: string[] = [];
  let line = first;
  let hasWord = false;
  for (const word of text.split(' ')) {
    if (hasWord && line.length + 1 + word.length > limit) {
      lines.push(line);
      line = `${indent}${word}`;
    } else line = hasWord ? `${line} ${word}` : `${line}${word}`;
    hasWord = true;
  }
  return [...lines, line];
}

/**
 * Two columns, indented by two. The right one is wrapped; where the left one leaves too little room, the right one begins below it.
 * @param width columns of the terminal
 */
export function renderColumns(rows: readonly (readonly [string, string])[], width: number): string[] {
  const left = Math.max(...rows.map(([name]) => name.length));
  const indent = ' '.repeat(left + 4);
  if (width - indent.length < 2 * LEAST) {
    return rows.flatMap(([name, text]) => [`  ${name}`, ...wrap(text, width, '      ', '      ')]);
  }
  return rows.flatMap(([name, text]) => wrap(text, width, `  ${name.padEnd(left)}  `, indent));
}

/**
 * Columns of the terminal; undefined if the output goes elsewhere and `COLUMNS` is not set: then nothing is cut or wrapped.
 * @param fd standard output or standard error
 */
export function widthOf(
  { env }: { readonly env: Readonly<Record<string, string | undefined>> },
  fd: 1 | 2 = 1,
): number | undefined {
  const set = Number(env.COLUMNS);
  if (Number.isInteger(set) && set > 0) return set;
  // A terminal whose size was never set says 0.
  return isTerminal(fd) ? (fd === 1 ? process.stdout : process.stderr).columns || undefined : undefined;
}

/** A line of a text and a column in it, both from 1. */
interface Spot {
  /** The whole line. */
  readonly text: string;
  readonly line: number;
  /** Counted as JavaScript counts: in UTF-16 units. */
  readonly column: number;
  /** Columns of the terminal. */
  readonly width: number;
}

/** However narrow the terminal is. */
const LEAST_EXCERPT = 20;
const CUT = '…';

/**
 * The line behind its number, and carets below the JSON value or the key at the column. What does not fit the width is cut off on
 * either side.
 */
export function excerptOf({ text, line, column, width }: Spot): [line: string, carets: string] {
  const number = `${line}`.padStart(5);
  const room = Math.max(width - number.length - ' | '.length, LEAST_EXCERPT);
  const plain = text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, ' ');
  const at = Math.min(column - 1, plain.length);
  // What begins there: a string, a number or a word; of an object or a list the first character.
  const token = /^(?:"(?:[^"\\]|\\.)*"?|[-+.\w]+)/.exec(plain.slice(at))?.[0] ?? plain.slice(at, at + 1);
  const { start, end } = windowAround(plain, at, room);
  const shown = `${start > 0 ? CUT : ''}${plain.slice(start, end)}${end < plain.length ? CUT : ''}`;
  const before = `${start > 0 ? CUT : ''}${plain.slice(start, at)}`;
  const marked = plain.slice(at, Math.min(at + token.length, end));
  const carets = `${' '.repeat(Bun.stringWidth(before))}${'^'.repeat(Math.max(Bun.stringWidth(marked), 1))}`;
  const gutter = ' '.repeat(number.length);
  return [`${number} | ${shown}`.trimEnd(), `${gutter} | ${carets}`];
}

/** The part of the line that is shown: all of it, or as much as fits, with a third of the room before the column. */
function windowAround(text: string, at: number, room: number): { start: number; end: number } {
  if (Bun.stringWidth(text) <= room) return { start: 0, end: text.length };
  const inner = room - 2 * CUT.length;
  const fits = (from: number, to: number) => Bun.stringWidth(text.slice(from, to)) <= inner;
  let start = at;
  while (start > 0 && Bun.stringWidth(text.slice(start - 1, at)) <= inner / 3) start--;
  let end = at;
  while (end < text.length && fits(start, end + 1)) end++;
  while (start > 0 && fits(start - 1, end)) start--;
  return { start, end };
}

/**
 * The one rule of every command: `--color always` or `never` decides; without it, a terminal gets colours unless `NO_COLOR` is set to
 * anything, or `TERM` is `dumb`.
 */
export function styleOf(call: Pick<CommandCall, 'env' | 'text'>): Style {
  const when = call.text('color') ?? 'auto';
  if (when === 'always' || when === 'never') return { colour: when === 'always' };
  return { colour: isTerminal(1) && !call.env.NO_COLOR && call.env.TERM !== 'dumb' };
}

/** Loads a module of Node that a chain, whose output is for programs, does without. */
function isTerminal(fd: number): boolean {
  return process.getBuiltinModule('node:tty').isatty(fd);
}
