import { expect, test } from 'bun:test';
import { countFindings, type Finding } from '../../../../src/cli/validate/finding.ts';

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
