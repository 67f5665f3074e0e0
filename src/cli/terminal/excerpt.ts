// How is a place in a text shown, with a caret below it?

/** A line of a text and a column in it, both from 1. */
export interface Spot {
  /** The whole line. */
  readonly text: string;
  readonly line: number;
  /** Counted as JavaScript counts: in UTF-16 units. */
  readonly column: number;
  /** Columns of the terminal. */
  readonly width: number;
}

/** However narrow the terminal is. */
const LEAST = 20;
const CUT = '…';

/**
 * The line behind its number, and carets below the JSON value or the key at the column. What does not fit the width is cut off on
 * either side.
 */
export function excerptOf({ text, line, column, width }: Spot): [line: string, carets: string] {
  const number = `${line}`.padStart(5);
  const room = Math.max(width - number.length - ' | '.length, LEAST);
  const plain = text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, ' ');
  const at = Math.min(column - 1, plain.length);
  const token = tokenAt(plain, at);
  const { start, end } = windowAround(plain, at, room);
  const shown = `${start > 0 ? CUT : ''}${plain.slice(start, end)}${end < plain.length ? CUT : ''}`;
  const before = `${start > 0 ? CUT : ''}${plain.slice(start, at)}`;
  const marked = plain.slice(at, Math.min(at + token.length, end));
  const carets = `${' '.repeat(Bun.stringWidth(before))}${'^'.repeat(Math.max(Bun.stringWidth(marked), 1))}`;
  const gutter = ' '.repeat(number.length);
  return [`${number} | ${shown}`.trimEnd(), `${gutter} | ${carets}`];
}

/** What begins there: a string, a number or a word; of an object or a list the first character. */
function tokenAt(text: string, at: number): string {
  return /^(?:"(?:[^"\\]|\\.)*"?|[-+.\w]+)/.exec(text.slice(at))?.[0] ?? text.slice(at, at + 1);
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
