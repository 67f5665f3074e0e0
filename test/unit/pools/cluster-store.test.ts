// Does a list end, is a node another machine than one of its name, when is a block of one that is gone freed, and what is a store from a backup?
import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ApiServer } from '../../../src/delegate/api-server.ts';
import { clusterStore } from '../../../src/pools/cluster-store.ts';
import { directoryStore } from '../../../src/pools/directory-store.ts';
import { listAll, POOL_LABEL } from '../../../src/pools/held.ts';
import type { Claimant } from '../../../src/pools/place.ts';
import { parsePool } from '../../../src/pools/pool.ts';
import { isRestored } from '../../../src/pools/restored.ts';
import { collect } from '../../../src/pools/tend.ts';

function storeThatAnswers(answer: object) {
  let asked = 0;
  const bodies: unknown[] = [];
  const server: ApiServer = {
    async ask(_method, _path, body) {
      asked++;
      bodies.push(body);
      return structuredClone(answer) as Awaited<ReturnType<ApiServer['ask']>>;
    },
    listen: () => Promise.reject(new Error('no watch')),
  };
  return { store: clusterStore(server), asked: () => asked, bodies };
}

test('a list whose server says "continue" for ever ends with an error', async () => {
  const { store, asked } = storeThatAnswers({ metadata: { continue: 'more' }, items: [] });
  await expect(listAll(store, 'blocks', {})).rejects.toMatchObject({
    code: 11,
    message: expect.stringContaining('Cannot list "apis/catena.cni.cncf.io/v1alpha1/blocks"'),
  });
  expect(asked()).toBe(1_000);
});

test('a Node object is this machine by the identity that no copy of its disk has, by the only one, or if it has none', async () => {
  const { store } = storeThatAnswers({ status: { nodeInfo: { systemUUID: 'ABC', machineID: 'disk' } } });
  const machines = ['abc new', 'disk', 'abc', ''];
  for (const machine of machines) expect(await store.hasNode('a', machine)).toBe(true);
  for (const machine of ['other disk', 'other new', 'other'])
    expect(await store.hasNode('a', machine)).toBe(false);
  expect(await storeThatAnswers({}).store.hasNode('a', 'other')).toBe(true);
});

test('only this very object is deleted, and only in the version that is named', async () => {
  const { store, bodies } = storeThatAnswers({});
  await store.remove('blocks', { name: 'b', uid: 'u' });
  await store.remove('blocks', { name: 'b', uid: 'u', version: '7' });
  expect(bodies).toMatchObject([
    { preconditions: { uid: 'u' } },
    { preconditions: { uid: 'u', resourceVersion: '7' } },
  ]);
});

/** A node of a network, whose store is a directory and what else is given. */
async function withClaimant(more: object, body: (claimant: Claimant) => Promise<void>): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'cat-claimant-'));
  const store = { ...directoryStore(`${dir}/store`), ...more };
  const place = {
    network: 'net',
    dir: `${dir}/leases`,
    node: 'a',
    machine: undefined,
    boot: 'b',
    reclaim: false,
  };
  try {
    await body({ ...place, clock: () => 0, store, random: () => 0 });
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const POOL = parsePool('p', { subnets: [{ ipv4: '10.1.0.0/24' }] });

test('a block whose node is gone is freed after the time of grace, and not before', async () => {
  await withClaimant({ hasNode: async (node: string) => node !== 'gone' }, async claimant => {
    const of = { pool: 'p', network: 'net', size: 64, cidrs: ['10.1.0.0/26'], ranges: [] };
    for (const node of ['a', 'gone', 'alive'])
      await claimant.store.create('blocks', {
        ...{ name: `of-${node}`, labels: { [POOL_LABEL]: 'p' }, spec: { ...of, node } },
      });
    const freed: string[][] = [];
    for (const now of [1_000, 1_059, 1_060])
      freed.push(await collect({ ...claimant, clock: () => now }, POOL, 60));
    expect(freed).toEqual([[], [], ['of-gone']]);
  });
});

test('a store is from a backup if its last change is older than one that this node knows', async () => {
  let revision = 7;
  await withClaimant({ revision: async () => revision }, async claimant => {
    const found: boolean[] = [];
    for (revision of [7, 7, 8, 6]) found.push(await isRestored(claimant, [POOL]));
    expect(found).toEqual([false, false, false, true]);
  });
});
