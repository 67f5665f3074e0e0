// Does a real API server do what the model does, and do the nodes agree with it?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import { clusterStore } from '../../src/pools/cluster-store.ts';
import { listAll } from '../../src/pools/held.ts';
import { deadline } from '../helpers/deadline.ts';
import { NO_REAL_API, type RealApi, startRealApi } from '../helpers/real-api.ts';
import { describeNeeding } from '../helpers/skip.ts';
import { Random } from '../storm/random.ts';
import { apiModel } from './api-model.ts';
import { findContradictions } from './checker.ts';
import { clientOf, DIRECT } from './faults.ts';
import { simulatedNode } from './node.ts';
import { ORDINAL } from './points.ts';

/** What the allocator relies on. @returns what it found */
async function tryOut(server: ApiServer): Promise<unknown[]> {
  const store = clusterStore(server);
  const block = {
    name: 'try-10.0.0.0',
    labels: { 'catena.cni.cncf.io/pool': 'try' },
    spec: {
      pool: 'try',
      node: 'a',
      network: 'n',
      size: 8,
      cidrs: ['10.0.0.0/29'],
      ranges: [{ from: '10.0.0.2', to: '10.0.0.6', prefix: 29 }],
    },
  };
  const created = await store.create('blocks', block);
  if (created === undefined) throw new Error('not created');
  const again = await store.create('blocks', block);
  const changed = await store.replace('blocks', { ...created, spec: { ...created.spec, orphaned: true } });
  // What changes nothing leaves the version as it is: src/pools/keep.ts counts turns because of that.
  const same = changed && (await store.replace('blocks', changed));
  const stale = await store.replace('blocks', created);
  const others = await listAll(store, 'blocks', { 'catena.cni.cncf.io/pool': 'other' });
  const own = await listAll(store, 'blocks', { 'catena.cni.cncf.io/pool': 'try' });
  const oldVersion = await store.remove('blocks', created);
  const otherUid = await store.remove('blocks', { name: block.name, uid: 'none' });
  const removed = await store.remove('blocks', { name: block.name, uid: created.uid });
  const twice = await store.remove('blocks', { name: block.name, uid: created.uid });
  const second = await store.create('blocks', block);
  const late = await store.remove('blocks', { name: block.name, uid: created.uid });
  const found = [
    again,
    stale,
    others,
    own.map(({ name }) => name),
    oldVersion,
    otherUid,
    removed,
    twice,
    late,
  ];
  const nodes = [await store.hasNode('no-such-node'), await store.hasNode('known')];
  await store.remove('blocks', { name: block.name, uid: second?.uid ?? '' });
  return [
    ...found,
    changed?.spec.orphaned,
    second?.uid === created.uid,
    same?.version === changed?.version,
    ...nodes,
    await store.find('blocks', block.name),
  ];
}

test('the model creates, replaces and deletes as the allocator expects', async () => {
  const model = apiModel();
  model.put('api/v1/nodes/known', { metadata: { name: 'known' } });
  expect(await tryOut(clientOf(model, DIRECT))).toEqual([
    ...[undefined, undefined, [], ['try-10.0.0.0'], false, false, true, false, false],
    ...[true, false, true, false, true, undefined],
  ]);
});

describeNeeding(
  'a real API server',
  () => {
    let dir: string;
    let api: RealApi;
    beforeAll(async () => {
      dir = mkdtempSync(join(tmpdir(), 'cat-api-'));
      api = await startRealApi(dir);
    }, deadline(180_000));
    afterAll(async () => {
      await api?.close();
      rmSync(dir, { recursive: true, force: true });
    });

    test('does what the model does', async () => {
      await api.addNode('known');
      const model = apiModel();
      model.put('api/v1/nodes/known', { metadata: { name: 'known' } });
      expect(await tryOut(api.server)).toEqual(await tryOut(clientOf(model, DIRECT)));
    });

    test('keeps an address for the next pod of a name, on another node and on the same', async () => {
      const spec = { subnets: [{ ipv4: '10.5.0.0/27' }], blockSize: 1, layout: 'flat' as const };
      const draws = new Random(3);
      const [a, b] = await Promise.all(
        ['k0', 'k1'].map(async name => {
          await api.addNode(name);
          const options = { name, dir: join(dir, 'kept'), api: api.server, pool: 'kept', spec };
          return simulatedNode({ ...options, random: () => draws.next() });
        }),
      );
      const [first = ''] = (await a?.add('web-0-first', 'eth0', ORDINAL)) ?? [];
      await a?.delAtOnce('web-0-first');
      expect(await b?.add('web-0-second', 'eth0', ORDINAL)).toEqual([first]);
      expect(await a?.tend({ lowWater: 0, coolDownS: 0 })).toMatchObject({ lost: [] });
      await b?.delAtOnce('web-0-second');
      expect(await b?.add('web-0-third', 'eth0', ORDINAL)).toEqual([first]);
      const { spec: stored } = (await api.server.ask(
        'GET',
        `apis/catena.cni.cncf.io/v1alpha1/addresses/kept-${first}`,
      )) as { spec: object };
      expect(stored).toMatchObject({ node: 'k1', keptFor: ORDINAL.keptFor, keepS: 600, turn: 4 });
    });

    test('refuses a pool that its schema does not allow', async () => {
      const pool = (spec: object) => ({
        apiVersion: 'catena.cni.cncf.io/v1alpha1',
        kind: 'Pool',
        metadata: { name: 'wrong' },
        spec,
      });
      const create = (spec: object) =>
        api.server.ask('POST', 'apis/catena.cni.cncf.io/v1alpha1/pools', pool(spec));
      expect(create({ subnets: [] })).rejects.toThrow('subnets');
      expect(create({ subnets: [{ ipv4: 'ten' }] })).rejects.toThrow('ipv4');
      expect(create({ subnets: [{ ipv4: '10.0.0.0/8' }], layout: 'other' })).rejects.toThrow('layout');
    });

    test('ten nodes ask at once for 300 addresses: none twice, none lost; then all go back', async () => {
      const names = Array.from({ length: 10 }, (_, i) => `n${i}`);
      for (const name of names) await api.addNode(name);
      const draws = new Random(5);
      const spec = { subnets: [{ ipv4: '10.64.0.0/22', ipv6: 'fd64::/118' }], blockSize: 8 };
      const nodes = names.map(name =>
        simulatedNode({
          name,
          dir: join(dir, 'nodes'),
          api: api.server,
          pool: 'real',
          spec,
          random: () => draws.next(),
          deadlineMs: 60_000,
        }),
      );
      const ids = Array.from({ length: 30 }, (_, i) => `p${i}`);
      await Promise.all(nodes.flatMap(node => ids.map(id => node.add(id))));
      expect(nodes.flatMap(node => node.leases())).toHaveLength(600);
      expect(findContradictions({ objects: await objectsOf(api.server) }, nodes)).toEqual([]);
      for (const node of nodes) for (const id of ids) node.del(id);
      for (const node of nodes) await node.tend({ lowWater: 0, coolDownS: 0 });
      expect((await objectsOf(api.server)).size).toBe(0);
    });
  },
  NO_REAL_API,
);

/** Blocks by path, as the checker expects them. */
async function objectsOf(server: ApiServer): Promise<ReturnType<typeof apiModel>['objects']> {
  const path = 'apis/catena.cni.cncf.io/v1alpha1/blocks';
  const { items } = (await server.ask('GET', path)) as {
    items: { metadata: { name: string; uid: string; resourceVersion: string } }[];
  };
  return new Map(items.map(item => [`${path}/${item.metadata.name}`, item]));
}
