import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { showable } from '../../../../src/cli/failure.ts';
import { countFindings, type Finding, renderValidation } from '../../../../src/cli/validate/finding.ts';

const FINDINGS: Finding[] = [
  {
    file: 'a.conflist',
    line: 2,
    column: 5,
    severity: 'error',
    rule: 'version',
    message: 'old',
    details: ['x  1', 'y  2'],
  },
  { file: 'b.conf', line: 1, column: 1, severity: 'warning', rule: 'order', message: 'late' },
];

test('countFindings() counts each severity', () => {
  expect(countFindings({ files: 2, findings: FINDINGS })).toEqual({ error: 1, warning: 1 });
});

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-render-'));
const file = path.join(dir, 'a.conflist');
beforeAll(() => fs.writeFileSync(file, '{\n  "mtu": "1400"\n}\n'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

const found = (): Finding[] => [
  {
    ...{ file, line: 2, column: 10, severity: 'error', rule: 'shape', message: 'no number' },
    details: ['x  1', 'y  2'],
  },
  { file, line: 1, column: 1, severity: 'warning', rule: 'file-name', message: 'odd name' },
  { file: `${dir}/gone`, line: 1, column: 1, severity: 'warning', rule: 'order', message: 'late' },
];

test('each finding in the format of editors, its details, the line with carets, and the total', () => {
  expect(renderValidation({ files: 2, findings: found() }, { colour: false })).toBe(
    [
      `${file}:2:10: error: no number [shape]`,
      '    x  1',
      '    y  2',
      '    2 |   "mtu": "1400"',
      '      |          ^^^^^^',
      `${file}:1:1: warning: odd name [file-name]`,
      `${dir}/gone:1:1: warning: late [order]`,
      '1 error, 2 warnings in 2 files',
      '',
    ].join('\n'),
  );
  expect(renderValidation({ files: 1, findings: [] }, { colour: false })).toBe('no problems in 1 file\n');
});

test('severity and carets are in colour, the place and the message as they are', () => {
  const [first = '', , , , carets = ''] = showable(
    renderValidation({ files: 1, findings: found() }, { colour: true }),
  ).split('\n');
  expect(first).toStartWith(`${file}:2:10: \u001b[31merror\u001b[`);
  expect(Bun.stripANSI(carets)).toBe('      |          ^^^^^^');
  expect(carets).not.toBe(Bun.stripANSI(carets));
});
