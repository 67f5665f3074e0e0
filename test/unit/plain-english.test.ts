// Are comments, messages, test titles and pages free of the idioms that made them hard to read?
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { findIdioms } from '../helpers/idioms.ts';
import { listFiles, ROOT } from '../helpers/source-tree.ts';

const PLACES = ['src', 'plugins', 'test', 'conflists', 'examples', '.github', 'README.md', 'CHANGELOG.md'];

/** Files that name idioms in order to refuse them. */
const EXCEPTIONS = ['test/helpers/idioms.ts', 'test/unit/plain-english.test.ts'];

test.each(PLACES)('%s is in plain English', place => {
  const files = fs.statSync(path.join(ROOT, place)).isDirectory() ? listFiles(place) : [place];
  const found = files
    .filter(file => /\.(tsx?|mjs|md|txt|proto|conflist)$/.test(file) && !EXCEPTIONS.includes(file))
    .flatMap(file =>
      findIdioms(file, fs.readFileSync(path.join(ROOT, file), 'utf8')).map(
        ({ line, idiom, instead }) => `${file}:${line}: "${idiom}"; write ${instead}`,
      ),
    );
  expect(found).toEqual([]);
});

describe('findIdioms()', () => {
  const idioms = (file: string, text: string) =>
    findIdioms(file, text).map(({ line, idiom }) => [line, idiom]);

  test('finds idioms in comments and strings, also when a line is wrapped inside of one', () => {
    const text =
      "// It is not there any\n// more.\nthrow new Error('nobody has it');\n/* a\n * Whoever asks */";
    expect(idioms('a.ts', text)).toEqual([
      [1, 'any more'],
      [3, 'nobody'],
      [5, 'Whoever'],
    ]);
  });

  test('ignores names, paths of imports, regular expressions and the user "nobody"', () => {
    const text =
      "import './strays.ts';\nconst nobody = /by now/.test(a);\nchown('nobody'); // the user \"nobody\"";
    expect(idioms('a.ts', text)).toEqual([]);
  });

  test('finds idioms anywhere in a page, but not in the titles of tests that it names', () => {
    const page = 'Somebody\n* `test/a.test.ts` "nobody is asked"\n';
    expect(idioms('a.md', page)).toEqual([[1, 'Somebody']]);
  });
});
