import { expect, test } from 'bun:test';
import { renderDiagnosis } from '../../../src/cli/commands/doctor.ts';
import { renderLog } from '../../../src/cli/commands/log.ts';
import { renderFailure } from '../../../src/cli/failure.ts';
import { showable } from '../../../src/cli/showable.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { painter } from '../../../src/lab/words.ts';

test.each([
  ['what moves a cursor', 'a\u001b[2Jb\u001b]0;title\u0007', 'a\\u001b[2Jb\\u001b]0;title\\u0007'],
  ['a line that is written over', 'failed\rdone', 'failed\\u000ddone'],
  ['the same with eight bits', '\u009b2J\u007f', '\\u009b2J\\u007f'],
  ['what turns the direction of writing', 'a\u202eb', 'a\\u202eb'],
])('showable() escapes %s', (_, text, shown) => {
  expect(showable(text)).toBe(shown);
});

test('showable() keeps lines, tabs and letters of any language', () => {
  const text = 'a\tb\né 漢 \n';
  expect(showable(text)).toBe(text);
});

test('showable() has our colours, and none that a text of someone else brings', () => {
  const foreign = 'sound\u001b[8m hidden\u001b[32m';
  expect(showable(painter({ colour: true })('red', foreign))).toBe(
    '\u001b[31msound\\u001b[8m hidden\\u001b[32m\u001b[39m',
  );
  expect(showable(painter({ colour: false })('red', 'a'))).toBe('a');
});

test('reports show a message of several lines as one, which cannot be taken for more of the report', () => {
  const forged = 'no\n2026-01-31 08:00:00  ADD  web: all is well\r\u001b[8m';
  const lines = (text: string) => showable(text).trimEnd().split('\n');
  const style = { colour: false };
  const entry = {
    time: '2026-01-31T08:00:00Z',
    what: 'ADD',
    by: 'daemon',
    code: 7,
    message: forged,
    source: 'trace',
  };
  expect(lines(renderLog([entry], style))).toEqual([expect.stringContaining('no\\n2026-01-31 08:00:00')]);
  expect(lines(renderFailure(new CniError(7, forged, { details: forged })))).toHaveLength(3);
  const finding = { id: 'x', severity: 'error', found: forged, mend: forged } as const;
  const verdict = { state: 'broken', summary: '1 thing to do' } as never;
  expect(lines(renderDiagnosis([finding], verdict, { colour: false, all: true }))).toHaveLength(3);
});

test('showable() keeps the meaning of JSON', () => {
  const value = { msg: '\u001b[2J \u009b \u202e' };
  expect(JSON.parse(showable(JSON.stringify(value)))).toEqual(value);
});
