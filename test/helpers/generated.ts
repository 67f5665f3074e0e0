// Is a part of a page what the sources say? With CATENA_WRITE_DOCS=1 (`npm run docs`) that part is written instead.
import { expect } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './source-tree.ts';

/** Rewrites every generated part; a failing comparison names it. */
export const COMMAND = 'npm run docs';

/**
 * Compares the lines between `<!-- generated: <name> -->` and `<!-- end -->` with what they should be.
 * @param page path below the root of the repository
 */
export function expectGenerated(page: string, name: string, lines: readonly string[]): void {
  const file = path.join(ROOT, page);
  const text = fs.readFileSync(file, 'utf8');
  const [start, end] = [`<!-- generated: ${name} -->`, '<!-- end -->'];
  const from = text.indexOf(start) + start.length;
  const to = text.indexOf(end, from);
  if (from < start.length || to < 0) throw new Error(`Cannot find the markers of "${name}" in ${page}`);
  const wanted = `\n\n${lines.join('\n')}\n\n`;
  if (process.env.CATENA_WRITE_DOCS === '1') {
    fs.writeFileSync(file, text.slice(0, from) + wanted + text.slice(to));
    return;
  }
  if (text.slice(from, to) !== wanted) {
    expect({ page, part: name, 'to write it': COMMAND, lines: text.slice(from, to).split('\n') }).toEqual({
      page,
      part: name,
      'to write it': COMMAND,
      lines: wanted.split('\n'),
    });
  }
}

/** A Markdown table. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]) => `| ${cells.map(escapeCell).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)];
}

function escapeCell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('\n', ' ');
}
