// Do nodes that claim blocks at the same time ever hold an address twice, whatever becomes of their requests?
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { cpSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { giveBackAllOf } from '../../plugins/cluster/tools.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { parseIp } from '../../src/net/ip.ts';
import { directoryStore } from '../../src/pools/directory-store.ts';
import type { Wish } from '../../src/pools/lease.ts';
import { RESTORED_ANNOTATION } from '../../src/pools/restored.ts';
import { deadline } from '../helpers/deadline.ts';
import { Random } from '../storm/random.ts';
import { apiModel } from './api-model.ts';
import { findContradictions, findLeasedTwice } from './checker.ts';
import { churn } from './churn.ts';
import { clientOf, DIRECT, FATES } from './faults.ts';
import { makeSimulatorDir, type NodeOptions, type SimulatedNode, simulatedNode } from './node.ts';
import { CLAIMED, HISTORIES, type History, MOVING, ORDINAL, tryEveryPoint } from './points.ts';

setDefaultTimeout(deadline(120_000));

const POOL = { subnets: [{ ipv4: '10.64.0.0/20', ipv6: 'fd64::/116' }], blockSize: 16 };
const CALM = { lowWater: 4, coolDownS: 0, graceS: 1e6 };
let dir: string;
beforeEach(() => {
  dir = makeSimulatorDir('cat-sim-');
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function cluster(names: readonly string[], seed = 1) {
  const model = apiModel();
  const draws = new Random(seed);
  const random = () => draws.next();
  const way = { ...DIRECT };
  for (const name of names) model.put(`api/v1/nodes/${name}`, { metadata: { name } });
  const node = (name: string, more: Partial<NodeOptions> = {}) =>
    simulatedNode({
      name,
      dir,
      api: clientOf(model, { fate: () => way.fate(), latencyMs: () => way.latencyMs() }),
      pool: 'default',
      spec: POOL,
      random,
      ...more,
    });
  return { model, random, way, nodes: names.map(name => node(name)), node };
}

const numbered = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

/** What any node may write: blocks of 64 addresses in the name of whatever node, without its machine. */
function claimAs({ put }: ReturnType<typeof apiModel>, node: string, first: number, count: number): void {
  const labels = { 'catena.cni.cncf.io/pool': 'default', 'catena.cni.cncf.io/node': node };
  for (let i = first; i < first + count; i++) {
    const from = `10.${64 + (i >> 10)}.${(i >> 2) & 255}.${(i & 3) * 64}`;
    const ranges = [{ from, to: from, prefix: 26, gateway: from }];
    put(`apis/catena.cni.cncf.io/v1alpha1/blocks/default-${from}`, {
      metadata: { name: `default-${from}`, labels },
      spec: { pool: 'default', node, network: 'podnet', size: 64, cidrs: [`${from}/26`], ranges },
    });
  }
}

describe('blocks', () => {
  test('an ADD claims a block once; those after it ask for nothing, nor does DEL', async () => {
    const {
      model,
      nodes: [node],
    } = cluster(['a']);
    expect(await node?.add('c1')).toHaveLength(2);
    const { requests } = model.counts;
    for (const id of numbered(12, 'p')) await node?.add(id);
    for (const id of numbered(12, 'p')) node?.del(id);
    expect(model.counts.requests).toBe(requests);
    expect(findContradictions(model, node ? [node] : [])).toEqual([]);
  });

  test('a block that was claimed again, with an answer that was lost, goes back too', async () => {
    const {
      model,
      nodes: [node],
    } = cluster(['a']);
    if (node === undefined) throw new Error('no node');
    await node.add('c1');
    const [path, object] = [...model.objects].find(([at]) => at.includes('/blocks/')) ?? [''];
    const { uid: _, ...metadata } = object?.metadata ?? { name: '' };
    // What the store forgot, and the node has created again.
    model.remove(path);
    model.put(path, { ...object, metadata: { ...metadata, uid: 'uid-again' } });
    node.del('c1');
    expect(await giveBackAllOf(node.claimant, 1_000)).toEqual([]);
    expect(model.objects.has(path)).toBe(false);
  });

  test('a kept address that is claimed again does not look like one of a store that was restored', async () => {
    const lan = {
      pool: 'lan',
      spec: { subnets: [{ ipv4: '10.9.0.0/24' }], blockSize: 1, layout: 'flat' as const },
    };
    const { model, node } = cluster(['a']);
    const own = node('a', lan);
    const wish: Wish = { keptFor: 'pod/lan/ns/web-0/eth0', keepS: 900, addresses: [], isPromise: false };
    const given: string[][] = [];
    for (const id of ['c1', 'c2', 'c3']) {
      given.push(await own.add(id, 'eth0', wish));
      if (id !== 'c3') await own.delAtOnce(id);
    }
    const [kept = []] = given;
    expect(given).toEqual([kept, kept, kept]);
    expect(own.leases()).toEqual(kept);
    const [path = ''] = [...model.objects.keys()].filter(at => at.includes('/addresses/'));
    const turnOf = () => (model.objects.get(path)?.spec as { turn?: number } | undefined)?.turn;
    const turn = turnOf();
    expect(turn).toBeGreaterThan(1);
    model.remove(path);
    const calm = { ...CALM, lowWater: 0 };
    expect((await own.tend(calm)).reclaimed).toHaveLength(1);
    expect(turnOf()).toBe(turn);
    for (let looks = 0; looks < 2; looks++) expect((await own.tend(calm)).restored).toBe(false);
  });

  test('a copy of a machine that leaves takes nothing from the one it was copied from', async () => {
    const { model, node } = cluster(['a']);
    model.put('api/v1/nodes/a', {
      metadata: { name: 'a' },
      status: { nodeInfo: { systemUUID: 'UUID-1', machineID: 'disk' } },
    });
    const original = node('a', { machine: 'uuid-1 disk' });
    await original.add('c');
    for (const [disk, more] of Object.entries({
      'under-its-name': {},
      'without-firmware': { machine: 'copy' },
    })) {
      cpSync(join(dir, 'a'), join(dir, disk), { recursive: true });
      const copy = node('a', { disk, machine: 'uuid-2 disk', boot: `boot-of-${disk}`, ...more });
      // What the original has was created again since.
      const [path, object] = [...model.objects].find(([at]) => at.includes('/blocks/')) ?? [''];
      model.remove(path);
      model.put(path, {
        ...object,
        metadata: { ...object?.metadata, name: path.split('/').at(-1) ?? '', uid: disk },
      });
      copy.collectGarbage(new Set());
      await giveBackAllOf(copy.claimant, 1_000);
      expect([disk, model.objects.has(path)]).toEqual([disk, true]);
    }
    expect(findContradictions(model, [original])).toEqual([]);
  });

  describe('a node whose last look is long ago', () => {
    const HOUR_S = 3600;

    test('asks before it leases: what the store lost since may be another node’s', async () => {
      const { model, node } = cluster(['a', 'b']);
      let now = 0;
      const clock = () => now;
      // One block: both want it.
      const spec = { ...POOL, subnets: [{ ipv4: '10.64.0.0/28', ipv6: 'fd64::/124' }] };
      const [frozen, other] = [node('a', { clock, spec }), node('b', { clock, spec })];
      await frozen.add('c');
      frozen.del('c');
      for (const path of [...model.objects.keys()].filter(at => at.includes('/blocks/'))) model.remove(path);
      now = HOUR_S;
      await other.add('d');
      expect(frozen.add('e')).rejects.toMatchObject({
        code: 11,
        message: expect.stringContaining('no IP addresses'),
      });
      expect(findLeasedTwice([frozen, other])).toEqual([]);
      expect(frozen.leases()).toEqual([]);
    });

    test('asks once in a while if the store is away, and pods start nevertheless', async () => {
      const { model, node, way } = cluster(['a']);
      let now = 0;
      const own = node('a', { clock: () => now });
      await own.add('first');
      now = HOUR_S;
      way.fate = () => 'fails';
      await own.add('asks');
      const { requests } = model.counts;
      for (const id of numbered(5, 'p')) await own.add(id);
      expect(model.counts.requests).toBe(requests);
      way.fate = DIRECT.fate;
      now += 60;
      await own.add('asks-again');
      expect(model.counts.requests).toBeGreaterThan(requests);
    });
  });

  test('an empty block goes back after its cool-down; the last one with room stays while anything is leased', async () => {
    const {
      model,
      nodes: [node],
    } = cluster(['a']);
    if (node === undefined) throw new Error('no node');
    for (const id of numbered(30, 'p')) await node.add(id);
    expect(node.blocks()).toHaveLength(3);
    const [last = '', ...others] = numbered(30, 'p').reverse();
    for (const id of others) node.del(id);
    const { returned } = await node.tend({ lowWater: 4, coolDownS: 1000 });
    expect(returned).toEqual([]);
    expect((await node.tend(CALM)).returned).toHaveLength(2);
    expect(node.blocks()).toHaveLength(1);
    node.del(last);
    expect((await node.tend(CALM)).returned).toHaveLength(1);
    expect(await node.tend(CALM)).toMatchObject({ claimed: 0, returned: [] });
    expect(findContradictions(model, [node])).toEqual([]);
  });

  test('a pool without a free block says who holds it', async () => {
    const { nodes } = cluster(numbered(2, 'n'));
    const small = { spec: { subnets: [{ ipv4: '10.9.0.0/27' }], blockSize: 16 }, pool: 'small' };
    const { node, model } = cluster(['x', 'y', 'z']);
    const [x, y, z] = ['x', 'y', 'z'].map(name => node(name, small));
    expect(nodes).toHaveLength(2);
    await x?.add('c');
    await y?.add('c');
    expect(z?.add('c')).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('nodes hold 2 of its 2 blocks'),
    });
    expect(model.counts.requests).toBeGreaterThan(0);
  });

  test('of a pool that another node has nearly whole, a block is found long before the list is read', async () => {
    const { model, node } = cluster(['a', 'mallory']);
    const spec = { subnets: [{ ipv4: '10.64.0.0/12' }], blockSize: 64 };
    claimAs(model, 'mallory', 0, 15_000);
    const asked: number[] = [];
    for (const id of numbered(9, 'n')) {
      const before = model.counts.requests;
      model.put(`api/v1/nodes/${id}`, { metadata: { name: id } });
      expect(await node(id, { spec }).add('c')).toHaveLength(1);
      asked.push(model.counts.requests - before);
    }
    // 15,000 blocks are 30 pages; one in twelve is free.
    expect(asked.sort((a, b) => a - b)[4]).toBeLessThan(30);
    await node('n0', { spec }).tend(CALM);
  });

  test('a pool whose block size has changed is refused: the blocks would overlap', async () => {
    const { node } = cluster(['x', 'y']);
    await node('x').add('c');
    const y = node('y', { spec: { ...POOL, blockSize: 32 } });
    expect(y.add('c')).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('16 addresses before'),
    });
  });

  test('a node that the cluster does not know gets no block', async () => {
    const { node } = cluster(['x']);
    expect(node('stranger').add('c')).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('no node of that name'),
    });
  });

  test('a node that was reinstalled finds its blocks again', async () => {
    const { model, node } = cluster(['a']);
    const first = node('a');
    await first.add('c');
    const names = first.blocks().map(({ name }) => name);
    rmSync(join(dir, 'a'), { recursive: true });
    const second = node('a');
    expect(await second.tend({ lowWater: 0, coolDownS: 1000 })).toMatchObject({ adopted: names });
    expect(findContradictions(model, [second])).toEqual([]);
  });

  test.each(['blocks', 'pools and blocks'])(
    '%s that vanished are claimed again while pods use them',
    async what => {
      const { model, nodes, node } = cluster(['a', 'b']);
      const [a] = nodes;
      await a?.add('c');
      const names = a?.blocks().map(({ name }) => name) ?? [];
      for (const path of [...model.objects.keys()])
        if (path.includes('/blocks/') || (what !== 'blocks' && path.includes('/pools/'))) model.remove(path);
      expect(await a?.tend({ lowWater: 0, coolDownS: 1000 })).toMatchObject({ lost: [], reclaimed: names });
      // Each is refused three times before it gives up, one after the other.
      const b = node('b', { pause: async () => {} });
      const others = numbered(40, 'p').map(id => b.add(id));
      // With the pool, everything was deleted: others may not have claimed theirs again yet.
      if (what === 'blocks') await Promise.all(others);
      else
        for (const outcome of await Promise.allSettled(others))
          expect(outcome).toMatchObject({
            status: 'rejected',
            reason: { code: 11, message: expect.stringContaining('was restored') },
          });
      expect(findContradictions(model, nodes)).toEqual([]);
    },
  );

  test('nodes that were made of one image have blocks of their own, and nothing of what the image had', async () => {
    const { model, node } = cluster(['template', 'a', 'b']);
    const template = node('template');
    for (const id of numbered(3, 'c')) await template.add(id);
    const copies = ['a', 'b'].map(name => {
      cpSync(join(dir, 'template'), join(dir, name), { recursive: true });
      return node(name, { boot: `boot-of-${name}` });
    });
    for (const copy of copies) {
      await copy.add('c9');
      expect(copy.leases()).toHaveLength(2);
    }
    expect(findContradictions(model, [template, ...copies])).toEqual([]);
  });

  test('a node that was renamed while it was off claims blocks by its new name', async () => {
    const { model, node } = cluster(['old', 'new']);
    await node('old').add('c');
    renameSync(join(dir, 'old'), join(dir, 'new'));
    model.remove('api/v1/nodes/old');
    const renamed = node('new', { boot: 'second', machine: 'machine-old' });
    await renamed.add('d');
    const objects = [...model.objects.values()].map(({ spec }) => (spec as { node?: string })?.node);
    expect(objects.filter(one => one === 'new')).toHaveLength(1);
    expect(renamed.leases()).toHaveLength(2);
  });

  test('a node that was renamed while its pods run keeps their blocks by its new name', async () => {
    const { model, node } = cluster(['old', 'new']);
    await node('old').add('c');
    renameSync(join(dir, 'old'), join(dir, 'new'));
    const renamed = node('new', { machine: 'machine-old' });
    // While the cluster has both, neither is the other.
    await renamed.tend(CALM);
    expect(renamed.blocks().map(({ state }) => state)).toEqual(['held']);
    model.remove('api/v1/nodes/old');
    await renamed.tend(CALM);
    expect(findContradictions(model, [renamed])).toEqual([]);
  });

  test('of two machines with one name, the one that the cluster knows gets blocks, and none of the other', async () => {
    const { model, node } = cluster(['a']);
    model.put('api/v1/nodes/a', {
      metadata: { name: 'a' },
      status: { nodeInfo: { systemUUID: 'UUID-1', machineID: 'disk' } },
    });
    const first = node('a', { machine: 'uuid-1 disk' });
    await first.add('c');
    const [former] = first.blocks();
    cpSync(join(dir, 'a'), join(dir, 'a-twin'), { recursive: true });
    const twin = node('a', { machine: 'uuid-2 other', network: 'twin', boot: 'other' });
    expect(twin.add('c')).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('another machine'),
    });
    // The disk is in another machine, and nothing of the former one is taken up before its time.
    model.put('api/v1/nodes/a', {
      metadata: { name: 'a' },
      status: { nodeInfo: { systemUUID: 'UUID-2', machineID: 'disk' } },
    });
    rmSync(join(dir, 'a'), { recursive: true });
    const second = node('a', { machine: 'uuid-2 disk' });
    await second.add('c');
    expect(await second.tend(CALM, 0)).toMatchObject({ adopted: [] });
    expect(second.blocks().map(({ name }) => name)).not.toContain(former?.name ?? '');
    model.put('api/v1/nodes/b', { metadata: { name: 'b' } });
    const b = node('b', { random: () => 0 });
    expect((await b.tend({ ...CALM, graceS: 0 })).collected).toEqual([former?.name ?? '']);
  });

  test.each(['', 'torn', '{"node":'])(
    'a list of blocks that reads %j is unknown: the store says',
    async text => {
      const { model, node } = cluster(['a']);
      const first = node('a');
      const before = await first.add('c');
      for (const boot of ['boot', 'second']) {
        writeFileSync(join(dir, 'a', '.catena-blocks'), text);
        const again = node('a', { boot });
        expect(await again.add(`in-${boot}`)).toHaveLength(2);
        expect(again.leases()).toEqual(expect.arrayContaining(before));
        expect(again.blocks()).toHaveLength(1);
        expect(findContradictions(model, [again])).toEqual([]);
      }
    },
  );

  test('overlaps are refused: with another pool, and in another pairing of the same', async () => {
    const { model, node } = cluster(['a']);
    const pool = (name: string, ...subnets: { ipv4: string; ipv6?: string }[]) =>
      node('a', { pool: name, spec: { subnets, blockSize: 16 }, network: `n${model.counts.requests}` }).add(
        'c',
      );
    await pool('one', { ipv4: '10.1.0.0/24', ipv6: 'fd01::/64' });
    for (const ipv4 of ['10.1.0.0/16', '10.1.0.128/25'])
      expect(pool('two', { ipv4 })).rejects.toMatchObject({
        code: 7,
        message: expect.stringContaining('overlaps 10.1.0.0/24,fd01::/64 of pool "one"'),
      });
    expect(pool('one', { ipv4: '10.2.0.0/24', ipv6: 'fd01::/64' })).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('in another pairing'),
    });
    expect(await pool('one', { ipv4: '10.1.0.0/23', ipv6: 'fd01::/64' })).toHaveLength(2);
  });

  test('a block that the store gave to another node is used no longer', async () => {
    const {
      model,
      nodes: [node],
    } = cluster(['a']);
    if (node === undefined) throw new Error('no node');
    const [before = ''] = await node.add('c');
    const [block] = node.blocks();
    const path = `apis/catena.cni.cncf.io/v1alpha1/blocks/${block?.name}`;
    const object = structuredClone(model.objects.get(path));
    model.remove(path);
    model.put(path, { ...object, spec: { ...(object?.spec as object), node: 'b', machine: 'machine-b' } });
    expect(await node.tend({ lowWater: 0, coolDownS: 1000 })).toMatchObject({ lost: [block?.name ?? ''] });
    const [after = ''] = await node.add('d');
    expect(
      node
        .blocks()
        .map(({ state }) => state)
        .sort(),
    ).toEqual(['held', 'lost']);
    expect(after.split('.').slice(0, 3)).not.toEqual(before.split('.'));
    node.del('c');
    await node.tend({ lowWater: 0, coolDownS: 1000 });
    expect(node.blocks().map(({ state }) => state)).toEqual(['held']);
  });

  test('blocks of a node that is gone are freed after the time of grace, unless it still looks after them', async () => {
    const { model, node } = cluster(['a', 'b', 'c']);
    let now = 0;
    const always = { clock: () => now, random: () => 0 };
    const [a, b, c] = ['a', 'b', 'c'].map(name => node(name, always));
    if (!a || !b || !c) throw new Error('no nodes');
    for (const one of [a, b, c]) await one.add('pod');
    const limits = { lowWater: 0, coolDownS: 1e6, graceS: 3600 };
    model.remove('api/v1/nodes/b');
    model.remove('api/v1/nodes/c');
    expect(await a.tend(limits)).toMatchObject({ collected: [] });
    now = 1800;
    // The Node object of c is missing, but c is there.
    expect(await c.tend(limits)).toMatchObject({ lost: [], collected: [] });
    now = 3599;
    expect(await a.tend(limits)).toMatchObject({ collected: [] });
    now = 3600;
    const [block] = b.blocks();
    expect(await a.tend(limits)).toMatchObject({ collected: [block?.name ?? ''] });
    expect(findContradictions(model, [a, c])).toEqual([]);
    // It was cut off, and none was faster.
    expect(await b.tend(limits)).toMatchObject({ reclaimed: [block?.name ?? ''] });
    expect(findContradictions(model, [a, b, c])).toEqual([]);
  });

  test('of a node that is gone, with thousands of blocks, one look marks a bounded number', async () => {
    const { model, node } = cluster(['a']);
    let now = 0;
    const spec = { subnets: [{ ipv4: '10.64.0.0/12' }], blockSize: 64 };
    const a = node('a', { spec, clock: () => now, random: () => 0 });
    await a.add('pod');
    const status = { nodeInfo: { systemUUID: 'uuid' } };
    model.put('api/v1/nodes/mallory', { metadata: { name: 'mallory' }, status });
    claimAs(model, 'mallory', 100, 20);
    for (const gone of ['gone', 'gone-too']) claimAs(model, gone, gone === 'gone' ? 200 : 2_200, 1_500);
    const marked = () => [...model.objects.values()].filter(one => (one.spec as JsonObject)?.orphaned).length;
    const limits = { lowWater: 0, coolDownS: 1e6, graceS: 3600 };
    await a.tend(limits);
    expect(marked()).toBe(1_024);
    now = 3600;
    expect((await a.tend(limits)).collected).toHaveLength(1_024);
    expect(a.blocks()).toHaveLength(1);
  });

  test('a node that was off while its blocks were freed leases nothing of them after its boot', async () => {
    const { model, node, way } = cluster(['a', 'b']);
    let now = 0;
    const small = { spec: { subnets: [{ ipv4: '10.9.0.0/27' }], blockSize: 16 }, pool: 'small' };
    const always = { ...small, clock: () => now, random: () => 0 };
    const [a, b] = [node('a', always), node('b', always)];
    for (const one of [a, b]) await one.add('pod');
    const limits = { lowWater: 0, coolDownS: 1e6, graceS: 3600 };
    model.remove('api/v1/nodes/b');
    await a.tend(limits);
    now = 3600;
    const [block] = b.blocks();
    expect(await a.tend(limits)).toMatchObject({ collected: [block?.name ?? ''] });
    for (const id of numbered(13, 'p')) await a.add(id);
    model.put('api/v1/nodes/b', { metadata: { name: 'b' } });
    const again = node('b', { ...always, boot: 'second' });
    again.collectGarbage(new Set());
    way.fate = () => 'fails';
    await expect(again.add('after')).rejects.toMatchObject({ code: 11 });
    way.fate = () => 'arrives';
    await expect(again.add('after')).rejects.toMatchObject({
      message: expect.stringContaining('nodes hold 2'),
    });
    expect(findContradictions(model, [a, again])).toEqual([]);
  });

  test('after a boot a node goes on with the blocks that are still its own', async () => {
    const { model, node, way } = cluster(['a']);
    const first = node('a');
    await first.add('before');
    const again = node('a', { boot: 'second' });
    again.collectGarbage(new Set());
    await again.add('after');
    way.fate = () => 'fails';
    expect(await again.add('later')).toHaveLength(2);
    expect(again.blocks()).toEqual(first.blocks());
    expect(again.blocks()).toHaveLength(1);
    expect(findContradictions(model, [again])).toEqual([]);
  });

  test('single addresses: an object each, at random, without the addresses that no pod may have', async () => {
    const spec = {
      subnets: [{ ipv4: '10.3.0.0/28' }],
      blockSize: 1,
      layout: 'flat' as const,
      gateways: ['10.3.0.1'],
      exclude: ['10.3.0.8/30'],
    };
    const { model, node } = cluster(['a', 'b']);
    const [a, b] = ['a', 'b'].map(name => node(name, { spec, pool: 'lan' }));
    if (!a || !b) throw new Error('no nodes');
    const given: string[] = [];
    for (let i = 0; i < 9; i++) given.push(...(await (i % 2 ? a : b).add(`p${i}`)));
    const allowed = [2, 3, 4, 5, 6, 7, 12, 13, 14].map(last => `10.3.0.${last}`);
    expect(given.sort()).toEqual(allowed.sort());
    expect(a.add('one-more')).rejects.toMatchObject({
      message: expect.stringContaining('nodes hold 9 of its 16 addresses'),
    });
    expect([...model.objects.keys()].filter(path => path.includes('/addresses/lan-10.3.0.'))).toHaveLength(9);
    expect(findContradictions(model, [a, b])).toEqual([]);
    a.del('p1');
    expect(await a.tend({ lowWater: 0, coolDownS: 0 })).toMatchObject({
      returned: [expect.stringMatching(/^lan-10\.3/)],
    });
    expect(await b.add('one-more')).toHaveLength(1);
    expect(findContradictions(model, [a, b])).toEqual([]);
  });

  test('1,000 addresses asked for by ten nodes at once', async () => {
    const { model, nodes, way, random } = cluster(numbered(10, 'n'), 7);
    way.latencyMs = () => random();
    await Promise.all(nodes.flatMap(node => numbered(100, 'p').map(id => node.add(id))));
    expect(nodes.flatMap(node => node.leases())).toHaveLength(2000);
    expect(findContradictions(model, nodes)).toEqual([]);
  });
});

const LAN = { subnets: [{ ipv4: '10.3.0.0/27' }], blockSize: 1, layout: 'flat' as const };
const CLAIM_PATH = 'apis/k8s.cni.cncf.io/v1alpha1/namespaces/ns/ipamclaims/vm';

describe('kept addresses', () => {
  function lan(names: readonly string[], clock?: () => number) {
    const made = cluster(names);
    const more = { spec: LAN, pool: 'lan', ...(clock && { clock }) };
    return { ...made, nodes: names.map(name => made.node(name, more)) as [SimulatedNode, SimulatedNode] };
  }
  const singles = { lowWater: 0, coolDownS: 0 };

  test('the next pod of a name gets the address of the one before it, on another node and on its own', async () => {
    const { nodes, model } = lan(['a', 'b']);
    const [a, b] = nodes;
    const [first] = await a.add('web-0-first', 'eth0', ORDINAL);
    await a.delAtOnce('web-0-first');
    expect(await b.add('web-0-second', 'eth0', ORDINAL)).toEqual([first ?? '']);
    expect(await a.tend(singles)).toMatchObject({ lost: [] });
    expect(a.blocks()).toEqual([]);
    await b.delAtOnce('web-0-second');
    expect(await b.add('web-0-third', 'eth0', ORDINAL)).toEqual([first ?? '']);
    expect(findContradictions(model, nodes)).toEqual([]);
  });

  test('one that is in use goes to none: the next pod gets another', async () => {
    const { nodes, model } = lan(['a', 'b']);
    const [a, b] = nodes;
    const [first] = await a.add('web-0-first', 'eth0', ORDINAL);
    const [second] = await b.add('web-0-second', 'eth0', ORDINAL);
    expect(second).not.toBe(first);
    expect(findContradictions(model, nodes)).toEqual([]);
  });

  test('other pods never get it, and it goes back after its time', async () => {
    let now = 0;
    const { nodes, model } = lan(['a', 'b'], () => now);
    const [a, b] = nodes;
    const [first = ''] = await a.add('web-0', 'eth0', ORDINAL);
    await a.delAtOnce('web-0');
    const others: string[] = [];
    for (let i = 0; i < 29; i++) others.push(...(await (i % 2 ? a : b).add(`p${i}`)));
    expect(others).not.toContain(first);
    expect(b.add('one-more')).rejects.toMatchObject({ code: 11 });
    now = 599;
    expect(await a.tend(singles)).toMatchObject({ returned: [] });
    now = 600;
    expect(await a.tend(singles)).toMatchObject({ returned: [`lan-${first}`] });
    expect(await b.add('one-more')).toEqual([first]);
    expect(findContradictions(model, nodes)).toEqual([]);
  });

  test('a claim holds its address while it exists, and refuses another one while it is in use', async () => {
    let now = 0;
    const { nodes, model } = lan(['a', 'b'], () => now);
    const [a, b] = nodes;
    model.put(CLAIM_PATH, { metadata: { name: 'vm', uid: 'claim-1' } });
    const [first = ''] = await a.add('vm-first', 'eth0', CLAIMED);
    expect(b.add('vm-second', 'eth0', CLAIMED)).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('an attachment on node "a" still has it'),
    });
    await a.delAtOnce('vm-first');
    now = 1e6;
    expect(await a.tend(singles)).toMatchObject({ returned: [] });
    expect(await b.add('vm-second', 'eth0', CLAIMED)).toEqual([first]);
    await b.delAtOnce('vm-second');
    // Another claim of the same name is another claim.
    model.remove(CLAIM_PATH);
    model.put(CLAIM_PATH, { metadata: { name: 'vm', uid: 'claim-2' } });
    await a.tend(singles);
    expect(await b.tend(singles)).toMatchObject({ returned: [`lan-${first}`] });
    expect(findContradictions(model, nodes)).toEqual([]);
  });

  describe('of a machine that moves', () => {
    const names = ['a', 'b', 'c'];
    const three = () => {
      const made = lan(names);
      made.model.put(CLAIM_PATH, { metadata: { name: 'vm', uid: 'claim-1' } });
      return { ...made, nodes: made.nodes as unknown as [SimulatedNode, SimulatedNode, SimulatedNode] };
    };

    test('two nodes have it, no third one, and it stays with the second when the first one’s pod ends', async () => {
      const { nodes, model } = three();
      const [a, b, c] = nodes;
      const [first = ''] = await a.add('source', 'eth0', CLAIMED);
      expect(await b.add('target', 'eth0', MOVING)).toEqual([first]);
      expect(c.add('third', 'eth0', MOVING)).rejects.toMatchObject({ code: 11 });
      expect(b.add('second', 'eth0', MOVING)).rejects.toMatchObject({ code: 11 });
      expect(await b.tend(singles)).toMatchObject({ lost: [], returned: [] });
      expect(findContradictions(model, nodes)).toEqual([]);
      await a.delAtOnce('source');
      expect(a.blocks()).toEqual([]);
      expect(await b.tend(singles)).toMatchObject({ lost: [], adopted: [] });
      expect(b.blocks()).toMatchObject([{ name: `lan-${first}`, state: 'held' }]);
      expect(b.blocks()[0]).not.toHaveProperty('guest');
      expect(await c.add('third', 'eth0', MOVING)).toEqual([first]);
      await b.delAtOnce('target');
      await c.delAtOnce('third');
      expect(await a.add('again', 'eth0', CLAIMED)).toEqual([first]);
      await c.tend(singles);
      expect(findContradictions(model, nodes)).toEqual([]);
    });

    test('it stays with the first when the second fails, whose node leases it to no other pod', async () => {
      const { nodes, model } = three();
      const [a, b, c] = nodes;
      const [first = ''] = await a.add('source', 'eth0', CLAIMED);
      await b.add('target', 'eth0', MOVING);
      b.del('target');
      expect(b.add('next', 'eth0', CLAIMED)).rejects.toMatchObject({ code: 11 });
      await b.delAtOnce('target');
      expect(b.blocks()).toEqual([]);
      expect(await c.add('target', 'eth0', MOVING)).toEqual([first]);
      await c.delAtOnce('target');
      expect(findContradictions(model, nodes)).toEqual([]);
    });

    test('both go on when all objects are deleted and applied again, and when the first node vanishes', async () => {
      const { nodes, model } = three();
      const [a, b, c] = nodes;
      const [first = ''] = await a.add('source', 'eth0', CLAIMED);
      await b.add('target', 'eth0', MOVING);
      for (const path of [...model.objects.keys()]) if (path.includes('/addresses/')) model.remove(path);
      await b.tend(singles);
      expect(await a.tend(singles)).toMatchObject({ lost: [] });
      expect(findContradictions(model, nodes)).toEqual([]);
      for (const path of [...model.objects.keys()]) if (path.includes('/addresses/')) model.remove(path);
      expect(await a.tend(singles)).toMatchObject({ reclaimed: [`lan-${first}`] });
      await b.tend(singles);
      expect(findContradictions(model, nodes)).toEqual([]);
      model.remove('api/v1/nodes/a');
      for (let i = 0; i < 6; i++) await c.tend({ ...singles, graceS: 0 });
      expect(await b.tend(singles)).toMatchObject({ lost: [] });
      expect(findContradictions(model, [b, c])).toEqual([]);
    });
  });

  test('the address of a claim outlasts its node', async () => {
    let now = 0;
    const { nodes, model } = lan(['a', 'b'], () => now);
    const [a, b] = nodes;
    model.put(CLAIM_PATH, { metadata: { name: 'vm', uid: 'claim-1' } });
    const [first = ''] = await a.add('vm-first', 'eth0', CLAIMED);
    model.remove('api/v1/nodes/a');
    const limits = { ...singles, graceS: 3600 };
    const look = () => b.tend(limits);
    for (let i = 0; i < 5; i++) await look();
    expect(b.add('vm-second', 'eth0', CLAIMED)).rejects.toMatchObject({ code: 11 });
    now = 3600;
    expect(await look()).toMatchObject({ collected: [] });
    expect(await b.add('vm-second', 'eth0', CLAIMED)).toEqual([first]);
    expect(findContradictions(model, [b])).toEqual([]);
  });

  test('one that changed hands after the backup stays with the node whose pod has it, however late that is noticed', async () => {
    const { nodes, model, node } = lan(['a', 'b', 'c']);
    const [a, b] = nodes;
    const c = node('c', { spec: LAN, pool: 'lan', pause: async () => {} });
    const [first = ''] = await a.add('web-0-first', 'eth0', ORDINAL);
    const restore = model.backup();
    await a.delAtOnce('web-0-first');
    expect(await b.add('web-0-second', 'eth0', ORDINAL)).toEqual([first]);
    restore();
    // By the number of its last change, the store is no longer behind what any node knows.
    for (let i = 0; i < 50; i++) model.put(CLAIM_PATH, { metadata: { name: 'vm', uid: `claim-${i}` } });
    await a.tend(singles);
    expect(c.add('web-0-third', 'eth0', ORDINAL)).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('was restored'),
    });
    expect(await b.tend(singles)).toMatchObject({ lost: [] });
    await a.tend(singles);
    expect(findContradictions(model, [...nodes, c])).toEqual([]);
  });

  test('in a directory, whose objects count changes each for itself, they change hands, and others are claimed', async () => {
    const { node } = cluster([]);
    const store = directoryStore(join(dir, 'store'));
    const more = { spec: LAN, pool: 'lan', store };
    const [a, b] = [node('a', more), node('b', more)];
    const [first = ''] = await a.add('web-0-0', 'eth0', ORDINAL);
    await a.delAtOnce('web-0-0');
    for (let i = 1; i < 6; i++) {
      const [from, to] = i % 2 ? [a, b] : [b, a];
      expect(await to.add(`web-0-${i}`, 'eth0', ORDINAL)).toEqual([first]);
      await to.delAtOnce(`web-0-${i}`);
      expect(await from.add(`p${i}`)).not.toEqual([first]);
      expect(await from.tend(singles)).toMatchObject({ restored: false, lost: [] });
    }
  });

  test('a backup with the mark of an earlier restore gets a mark of its own', async () => {
    let now = 0;
    const { nodes, model, node } = lan(['a', 'b', 'c'], () => now);
    const [a, b] = nodes;
    const c = node('c', { spec: LAN, pool: 'lan', clock: () => now, pause: async () => {} });
    await a.add('p');
    const [path = ''] = [...model.objects.keys()].filter(key => key.endsWith('/pools/lan'));
    const annotationsOf = () =>
      ((model.objects.get(path)?.metadata ?? {}) as { annotations?: Record<string, string> }).annotations ??
      {};
    const pool = structuredClone(model.objects.get(path));
    model.put(path, {
      ...pool,
      metadata: { ...pool?.metadata, annotations: { ...annotationsOf(), [RESTORED_ANNOTATION]: '7' } },
    });
    await a.tend(singles);
    const restore = model.backup();
    now = 2000;
    await a.tend(singles);
    expect(annotationsOf()[RESTORED_ANNOTATION]).toBeUndefined();
    const [first = ''] = await b.add('web-0', 'eth0', ORDINAL);
    for (let i = 0; i < 20; i++) model.put(CLAIM_PATH, { metadata: { name: 'vm', uid: `claim-${i}` } });
    await a.tend(singles);
    restore();
    await a.tend(singles);
    expect(annotationsOf()[RESTORED_ANNOTATION]).not.toBe('7');
    expect(c.add('web-0-again', 'eth0', ORDINAL)).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('was restored'),
    });
    expect(await b.tend(singles)).toMatchObject({ reclaimed: [`lan-${first}`] });
    expect(findContradictions(model, [...nodes, c])).toEqual([]);
  });

  test('a requested address is given, or refused; a pool of blocks gives none', async () => {
    const { nodes, node } = lan(['a', 'b']);
    const [a, b] = nodes;
    const wish = (text: string): Wish => ({
      keptFor: undefined,
      keepS: undefined,
      addresses: [parseIp(text)],
      isPromise: true,
    });
    expect(await a.add('one', 'eth0', wish('10.3.0.9'))).toEqual(['10.3.0.9']);
    for (const other of [a, b])
      expect(other.add('two', 'eth0', wish('10.3.0.9'))).rejects.toMatchObject({ code: 11 });
    expect(a.add('three', 'eth0', wish('10.4.0.9'))).rejects.toMatchObject({ code: 7 });
    expect(node('a').add('four', 'eth0', wish('10.64.0.9'))).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('its blocks have 16 addresses'),
    });
  });
});

// Every request of a fixed history, one after the other, has each fate.
test(
  'ten minutes of churn, with everything failing',
  async () => {
    const { problems, counts } = await churn({ seconds: 600, nodes: 6, seed: 3 });
    expect(problems).toEqual([]);
    expect(counts.ADD).toBeGreaterThan(500);
  },
  deadline(120_000),
);

describe('each request of ADD, DEL, upkeep and GC', () => {
  test.each(Object.keys(HISTORIES).flatMap(name => FATES.map(fate => [name, fate] as const)))(
    'of %s %s: no address is held twice, and none is lost',
    async (name, fate) => {
      const { points, problems } = await tryEveryPoint(HISTORIES[name] as History, fate);
      expect({ problems }).toEqual({ problems: [] });
      expect(points).toBeGreaterThan(20);
    },
    deadline(120_000),
  );

  test.each([1, 2, 3, 4, 5, 6])(
    'at random, eight nodes at once in a pool that is nearly full (seed %d)',
    async seed => {
      const spec = { subnets: [{ ipv4: '10.8.0.0/24' }], blockSize: 8 };
      const { model, way, random, node } = cluster(numbered(8, 'n'), seed);
      way.fate = () => (random() < 0.2 ? (FATES[Math.floor(random() * FATES.length)] ?? 'fails') : 'arrives');
      way.latencyMs = () => random() * 2;
      const nodes = numbered(8, 'n').map(name => node(name, { spec, pool: 'tight' }));
      const seen: string[] = [];
      const churn = async (own: (typeof nodes)[number]) => {
        const live: string[] = [];
        for (let i = 0; i < 60; i++) {
          const dice = random();
          if (dice < 0.5) {
            const id = `p${i}`;
            if (await own.add(id).catch(() => undefined)) live.push(id);
          } else if (dice < 0.85) {
            const [id] = live.splice(Math.floor(random() * live.length), 1);
            if (id) own.del(id);
          } else await own.tend({ lowWater: 2, coolDownS: 0 }).catch(() => undefined);
          seen.push(...findLeasedTwice(nodes));
        }
      };
      await Promise.all(nodes.map(churn));
      expect(seen).toEqual([]);
      way.fate = () => 'arrives';
      for (const _ of [1, 2]) for (const own of nodes) await own.tend({ lowWater: 0, coolDownS: 0 }, 0);
      expect(findContradictions(model, nodes)).toEqual([]);
    },
    deadline(120_000),
  );
});
