import { expect, test } from 'bun:test';
import { countFindings, type Finding, renderReport } from '../../../src/validate/finding.ts';

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

test('renderReport() prints a line for each finding, its details below, and the total', () => {
  expect(renderReport({ files: 2, findings: FINDINGS })).toBe(
    [
      'a.conflist:2:5: error: old [version]',
      '    x  1',
      '    y  2',
      'b.conf:1:1: warning: late [order]',
      '1 error, 1 warning in 2 files',
      '',
    ].join('\n'),
  );
  expect(renderReport({ files: 1, findings: [] })).toBe('no problems in 1 file\n');
});

test('countFindings() counts each severity', () => {
  expect(countFindings({ files: 2, findings: FINDINGS })).toEqual({ error: 1, warning: 1 });
});
