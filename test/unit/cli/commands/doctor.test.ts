import { expect, test } from 'bun:test';
import { renderDiagnosis } from '../../../../src/cli/commands/doctor.ts';
import { showable } from '../../../../src/cli/failure.ts';
import { type Finding, judge } from '../../../../src/node/doctor/finding.ts';

const broken = Array.from({ length: 12 }, (_, i): Finding => {
  return {
    id: 'attachments',
    severity: 'error',
    found: `container ${i} is broken`,
    mend: 'catena repair podnet',
  };
});
const FINDINGS: readonly Finding[] = [
  ...broken,
  { id: 'kernel.foreign-rules', severity: 'unexamined', found: 'rules of other programs' },
  { id: 'state.locks', severity: 'ok', found: 'no lock is held' },
];
const render = (all: boolean, colour = false) =>
  renderDiagnosis(FINDINGS, judge(FINDINGS, true), { colour, all }).split('\n');

test('renderDiagnosis() shows a fix once for all that it fixes, and ends with the verdict', () => {
  const lines = render(false);
  expect(lines.slice(9)).toEqual([
    'error    attachments: container 9 is broken',
    '         and 2 more like these; --all shows them',
    '         fix: catena repair podnet',
    'unseen   kernel.foreign-rules: rules of other programs',
    '1 check found no problem; --all shows it',
    '1 thing to do (12 errors); 1 thing could not be examined: run as root',
    '',
  ]);
  expect(render(true)).toContain('ok       state.locks: no lock is held');
  expect(render(true)).toContain('error    attachments: container 11 is broken');
});

test('renderDiagnosis() paints the severity and the verdict, and nothing else', () => {
  const lines = render(false, true).map(showable);
  expect(lines[0]).toBe('\u001b[31merror\u001b[39m    attachments: container 0 is broken');
  expect(lines.at(-2)).toStartWith('\u001b[31m1 thing to do');
});
