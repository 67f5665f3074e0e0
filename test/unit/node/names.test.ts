// What do people call a container?
import { expect, test } from 'bun:test';
import { namesOf, titleOfId } from '../../../src/node/names.ts';

const STORED = new Map([['c1', 'db']]);
const DERIVED = 'cnitool-82e215debf7df4651d36';

test.each([
  ['its name in the list of its runtime', 'c1', '/run/netns/x', { containerName: 'db' }],
  [
    'the name of the namespace that its id was derived from',
    DERIVED,
    '/run/netns/web',
    { containerName: 'web' },
  ],
  ['nothing, of a namespace without a name', DERIVED, '/proc/7/ns/net', {}],
  ['nothing, of an id that a runtime made', 'c2', '/run/netns/cni-1234', {}],
])('a container is called %s', (_, containerId, netns, names) => {
  expect(namesOf({ containerId, args: [], netns }, STORED)).toEqual(names);
});

test('a container of which only the id is known is called by its name, or the beginning of the id', () => {
  const id = '4f1c0a9be2d3'.padEnd(64, '0');
  expect(['c1', 'c2', id].map(one => titleOfId(one, STORED))).toEqual(['db', 'c2', '4f1c0a9be2d3']);
});
