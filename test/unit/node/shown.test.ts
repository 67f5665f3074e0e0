import { expect, test } from 'bun:test';
import type { NodeAttachment } from '../../../src/node/model.ts';
import { withoutStandIns } from '../../../src/node/shown.ts';

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
