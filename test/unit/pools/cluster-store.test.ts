// Does a list end, and is a node another machine than one of its name?
import { expect, test } from 'bun:test';
import type { ApiServer } from '../../../src/delegate/api-server.ts';
import { clusterStore } from '../../../src/pools/cluster-store.ts';
import { listAll } from '../../../src/pools/objects.ts';

function storeThatAnswers(answer: object) {
  let asked = 0;
  const server: ApiServer = {
    async ask() {
      asked++;
      return structuredClone(answer) as Awaited<ReturnType<ApiServer['ask']>>;
    },
    listen: () => Promise.reject(new Error('no watch')),
  };
  return { store: clusterStore(server), asked: () => asked };
}

test('a list whose server says "continue" for ever ends with an error', async () => {
  const { store, asked } = storeThatAnswers({ metadata: { continue: 'more' }, items: [] });
  await expect(listAll(store, 'blocks', {})).rejects.toMatchObject({
    code: 11,
    message: expect.stringContaining('Cannot list "apis/catena.cni.cncf.io/v1alpha1/blocks"'),
  });
  expect(asked()).toBe(1_000);
});

test('a Node object is this machine by one of its identities, or if it has none', async () => {
  const { store } = storeThatAnswers({ status: { nodeInfo: { systemUUID: 'ABC', machineID: 'disk' } } });
  const machines = ['abc new', 'other disk', 'abc', ''];
  for (const machine of machines) expect(await store.hasNode('a', machine)).toBe(true);
  expect(await store.hasNode('a', 'other new')).toBe(false);
  expect(await storeThatAnswers({}).store.hasNode('a', 'other')).toBe(true);
});
