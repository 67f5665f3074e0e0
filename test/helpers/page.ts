// Which sections and blocks of code does a Markdown page have? For tests that execute what a page shows.

import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './source-tree.ts';

/** What is between two lines of three backticks. */
export interface Block {
  readonly language: string;
  /** What the first line has after the language, by which a program finds the block; readers of the page do not see it. */
  readonly name: string;
  readonly text: string;
}

const FENCED = /^```(\w*) ?(.*)\n([\s\S]*?)^```$/gm;

/** The text of a page. @param page path below the root of the repository */
export function readPage(page: string): string {
  return fs.readFileSync(path.join(ROOT, page), 'utf8');
}

/** The blocks of a text, in their order. */
export function blocksIn(text: string): Block[] {
  return Array.from(text.matchAll(FENCED), ([, language = '', name = '', content = '']) => {
    return { language, name, text: content };
  });
}

/** The first block of code in a language. @throws Error if the page has none */
export function firstBlock(page: string, language: string): string {
  const found = blocksIn(readPage(page)).find(block => block.language === language);
  if (found === undefined) throw new Error(`Cannot find a block of ${language} in ${page}`);
  return found.text;
}

/** What is below a heading, with the sections inside. @throws Error if the page does not have it exactly once */
export function sectionOf(page: string, title: string): string {
  const text = readPage(page);
  // A comment of a shell looks like a heading.
  const prose = text.replace(FENCED, block => block.replace(/[^\n]/g, ' '));
  const headings = Array.from(
    prose.matchAll(/^(#+) (.*)$/gm),
    ({ index, 0: line, 1: marks = '', 2: words }) => {
      return { from: index, to: index + line.length, level: marks.length, words };
    },
  );
  const [heading, second] = headings.filter(({ words }) => words === title);
  if (heading === undefined || second !== undefined)
    throw new Error(`Cannot find one section "${title}" in ${page}`);
  const next = headings.find(({ from, level }) => from > heading.from && level <= heading.level);
  return text.slice(heading.to, next?.from);
}
