import { expect, test } from 'bun:test';
import { currentUser, exitCodeOf, type Finding, judge } from '../../../../src/node/doctor/finding.ts';

const filesOf = (map: string) => (path: string) => (path.endsWith('uid_map') ? map : '65534\n');

test('currentUser() knows every user outside of user namespaces', () => {
  expect(currentUser(filesOf('         0          0 4294967295\n')).unknown).toBeUndefined();
  expect(currentUser(() => undefined).unknown).toBeUndefined();
});

test('currentUser() shows the id of users that a user namespace does not know', () => {
  expect(currentUser(filesOf('0 1000 1\n')).unknown).toBe(65_534);
  expect(currentUser(filesOf('0 1000 1\n1 100000 65536\n')).unknown).toBe(65_534);
});

const REPAIR = 'catena repair podnet';
const finding = (severity: Finding['severity'], found: string, mend?: string): Finding => ({
  id: 'attachments',
  severity,
  found,
  ...(mend === undefined ? {} : { mend }),
});
const broken = ['a', 'b', 'c'].map(name => finding('error', `"${name}" is broken`, REPAIR));
const full = finding('warning', 'nearly full', 'catena ipam ls podnet');
const unseen = finding('unexamined', 'whether ports lead to containers');
const fine = finding('ok', 'no lock is held');
const note = finding('info', 'last attachment yesterday');

test.each([
  ['healthy', 0, [fine, note], 'healthy'],
  ['one fix for many findings', 1, [...broken, fine], '1 thing to do (3 errors)'],
  ['errors and warnings', 1, [...broken, full], '2 things to do (3 errors, 1 warning)'],
  ['a warning', 0, [full], '1 thing to do (1 warning)'],
  [
    'what is unseen',
    3,
    [unseen, fine],
    'nothing wrong in what could be examined; 1 thing could not be examined: run as root',
  ],
  [
    'an error beside it',
    1,
    [...broken, unseen],
    '1 thing to do (3 errors); 1 thing could not be examined: run as root',
  ],
] as const)('judge() sums up %s', (_what, exitCode, findings, summary) => {
  const verdict = judge(findings, true);
  expect([verdict.summary, exitCodeOf(verdict)]).toEqual([summary, exitCode]);
});

test('judge() does not send root to root', () => {
  expect(judge([unseen], false).summary).toEndWith('could not be examined');
});
