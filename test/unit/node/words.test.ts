import { expect, test } from 'bun:test';
import type { NodeAttachment } from '../../../src/node/model.ts';
import {
  leavesNode,
  renderAge,
  renderMoment,
  withoutElements,
  withoutKeys,
  withoutStandIns,
} from '../../../src/node/words.ts';

const NOW = new Date(2026, 0, 31, 8, 30).getTime();
const HOUR = 3_600_000;

test.each([
  [-5_000, '0 s'],
  [59_000, '59 s'],
  [HOUR - 1, '59 min'],
  [47 * HOUR, '47 h'],
  [49 * HOUR, '2 days'],
])('renderAge() of %d ms', (ms, words) => {
  expect(renderAge(new Date(NOW - ms).toISOString(), NOW)).toBe(words);
});

test.each(['2026-11-27T08:00:00.123Z', '2026-11-27T08:00:00Z'])('renderMoment() of %s', time => {
  expect(renderMoment(time)).toBe('2026-11-27 08:00:00 UTC');
});

test('several elements of sets are counted, one is named', () => {
  const element = (key: string, set: string) => `{ ${key} } of "${set}" is missing`;
  const [one, two, three] = [
    element('10.1.0.2 . 10.1.0.0', 'local4'),
    element('10.1.0.2', 'pods4'),
    element('fd00::2', 'pods6'),
  ];
  const said = (rest: string) => withoutElements(`Cannot confirm masquerading: ${rest}`);
  expect([said(one), said(`${one} and ${two}`), said(`${one}, ${two}, ${three} and 4 more`)]).toEqual([
    `Cannot confirm masquerading: ${one}`,
    'Cannot confirm masquerading: 2 elements are missing',
    'Cannot confirm masquerading: 7 elements are missing',
  ]);
});

test('elements of the same sets are said alike, whatever their keys are', () => {
  const lost = (...keys: string[]) =>
    withoutKeys(`Cannot confirm ports: ${keys.map(key => `{ ${key} } of "pods4" is missing`).join(', ')}`);
  const alike = 'Cannot confirm ports: elements of "pods4" are missing';
  expect([lost('10.1.0.2'), lost('10.1.0.3', '10.1.0.4')]).toEqual([alike, alike]);
  expect(withoutKeys('Cannot confirm ports: rules of chain "guard" are not ours')).toContain('"guard"');
});

test('a packet for another host is known to leave, not to arrive', () => {
  expect(leavesNode([{ evidence: 'leaves through "eth0", next hop 10.0.0.1' }])).toBe(true);
  expect(leavesNode([{ evidence: 'it leaves through "eth0"' }])).toBe(false);
});

const on = (network: string, more: Partial<NodeAttachment> = {}) =>
  ({ network, containerId: 'web', ifname: 'eth0', ...more }) as NodeAttachment;
const namesOf = (...all: NodeAttachment[]) => withoutStandIns(all).map(({ network }) => network);

test('the attachment to a delegate runner is left out beside those that it made', () => {
  expect(namesOf(on('default'), on('pods', { through: 'default' }))).toEqual(['pods']);
  expect(namesOf(on('default'))).toEqual(['default']);
  expect(namesOf(on('default', { containerId: 'db' }), on('pods', { through: 'default' }))).toEqual([
    'default',
    'pods',
  ]);
});

test('one that a runner made under its own name, and loopback', () => {
  expect(namesOf(on('default', { through: 'default' }), on('lo', { ifname: 'lo' }))).toEqual(['default']);
});
