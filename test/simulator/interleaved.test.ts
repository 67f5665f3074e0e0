// What if another node, an operator or a backup acts between a node's reading of its blocks and what it does then?
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { clusterStore } from '../../src/pools/cluster-store.ts';
import { directoryStore } from '../../src/pools/directory-store.ts';
import type { ObjectKind, ObjectStore } from '../../src/pools/held.ts';
import { deadline } from '../helpers/deadline.ts';
import { Random } from '../storm/random.ts';
import { apiModel } from './api-model.ts';
import { findContradictions, findLeasedTwice } from './checker.ts';
import { clientOf, DIRECT, type Fate } from './faults.ts';
import { makeSimulatorDir, type NodeOptions, simulatedNode } from './node.ts';
import { CLAIMED, MOVING, ORDINAL } from './points.ts';

setDefaultTimeout(deadline(60_000));

const TWO_BLOCKS = { subnets: [{ ipv4: '10.64.0.0/27' }], blockSize: 16 };
const ONE_BLOCK = { subnets: [{ ipv4: '10.64.0.0/28' }], blockSize: 16 };
const LAN = { subnets: [{ ipv4: '10.3.0.0/28' }], blockSize: 1, layout: 'flat' as const };
const KEEPING = { lowWater: 0, coolDownS: 1e6, graceS: 3600 };
const RETURNING = { lowWater: 0, coolDownS: 0 };

let dir: string;
let now: number;
let acts: (() => Promise<unknown>) | undefined;
let fateOf: (node: string) => Fate;
beforeEach(() => {
  dir = makeSimulatorDir('cat-sim-');
  now = 0;
  acts = undefined;
  fateOf = () => 'arrives';
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** Others act once, after a node has read one of its blocks or all of them. */
function interrupted(inner: ObjectStore): ObjectStore {
  const act = async (kind: ObjectKind): Promise<void> => {
    const due = kind === 'pools' ? undefined : acts;
    if (due) acts = undefined;
    await due?.();
  };
  return {
    ...inner,
    async find(kind, name) {
      const found = await inner.find(kind, name);
      await act(kind);
      return found;
    },
    async *pages(kind, labels) {
      yield* inner.pages(kind, labels);
      await act(kind);
    },
  };
}

function cluster(names: readonly string[], spec: NodeOptions['spec'] = TWO_BLOCKS) {
  const model = apiModel();
  const draws = new Random(1);
  for (const name of names) model.put(`api/v1/nodes/${name}`, { metadata: { name } });
  const node = (name: string, more: Partial<NodeOptions> = {}) => {
    const api = clientOf(model, { ...DIRECT, fate: () => fateOf(name) });
    const same = { dir, api, spec, pool: 'default', random: () => draws.next(), clock: () => now };
    return simulatedNode({
      name,
      ...same,
      store: interrupted(clusterStore(api)),
      pause: async () => {},
      ...more,
    });
  };
  const changes = (count: number) => {
    for (let i = 0; i < count; i++) model.put('api/v1/nodes/z', { metadata: { name: 'z', count: i } });
  };
  const pathOf = (kind: ObjectKind) => [...model.objects.keys()].find(at => at.includes(`/${kind}/`)) ?? '';
  return { model, node, changes, pathOf };
}

const ids = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

describe('the block of a node that seemed to have vanished', () => {
  /** Of three nodes, the first one holds a block of two, and the second the other one. */
  async function three() {
    const made = cluster(['owner', 'looker', 'other']);
    const looking = { random: () => 0 };
    const [owner, looker, other] = [made.node('owner'), made.node('looker', looking), made.node('other')];
    await owner.add('p');
    await looker.add('q');
    return { ...made, owner, looker, other };
  }

  test('is claimed again when it is freed while its owner takes off the mark', async () => {
    const { model, owner, looker, other } = await three();
    model.remove('api/v1/nodes/owner');
    await looker.tend(KEEPING);
    now = 3600;
    const [{ name = '' } = {}] = owner.blocks();
    acts = async () => expect(await looker.tend(KEEPING)).toMatchObject({ collected: [name] });
    expect(await owner.tend(KEEPING)).toMatchObject({ reclaimed: [name] });
    expect(other.add('r')).rejects.toMatchObject({ code: 11 });
    expect(findContradictions(model, [owner, looker])).toEqual([]);
  });

  test('is leased from no longer when its owner was stopped for an hour after it had read that it has it', async () => {
    const { model, owner, looker, other } = await three();
    await owner.tend(KEEPING);
    acts = async () => {
      model.remove('api/v1/nodes/owner');
      await looker.tend(KEEPING);
      now = 3600;
      expect((await looker.tend(KEEPING)).collected).toHaveLength(1);
      for (const id of ids(3, 'r')) await other.add(id);
    };
    await owner.tend(KEEPING);
    owner.del('p');
    for (const id of ids(3, 's')) await owner.add(id).catch(() => {});
    expect(findLeasedTwice([owner, other])).toEqual([]);
  });

  test('stays with it when others mark it while it takes its new name', async () => {
    const { model, node } = cluster(['old', 'new', 'looker']);
    await node('old').add('p');
    renameSync(join(dir, 'old'), join(dir, 'new'));
    const [renamed, looker] = [node('new', { machine: 'machine-old' }), node('looker', { random: () => 0 })];
    model.remove('api/v1/nodes/old');
    acts = () => looker.tend(KEEPING);
    expect(renamed.tend(KEEPING)).rejects.toMatchObject({ code: 11 });
    expect(await renamed.tend(KEEPING)).toMatchObject({ lost: [] });
    expect(findContradictions(model, [renamed])).toEqual([]);
  });
});

describe('a kept address', () => {
  test('is that of the machine that moves, when the node that it leaves ends its part at that moment', async () => {
    const { model, node, pathOf } = cluster(['a', 'b', 'c'], LAN);
    const [a, b, c] = [node('a'), node('b'), node('c')];
    const claim = 'apis/k8s.cni.cncf.io/v1alpha1/namespaces/ns/ipamclaims/vm';
    model.put(claim, { metadata: { name: 'vm', uid: 'claim-1' } });
    const moved = await a.add('source', 'eth0', CLAIMED);
    expect(await b.add('target', 'eth0', MOVING)).toEqual(moved);
    // A backup knows nothing of the move.
    const object = structuredClone(model.objects.get(pathOf('addresses')));
    model.put(pathOf('addresses'), { ...object, spec: { ...(object?.spec as object), next: undefined } });
    // It is read as one of all blocks first.
    acts = async () => {
      acts = () => a.delAtOnce('source');
    };
    for (const one of [b, a]) await one.tend(RETURNING);
    expect(c.add('third', 'eth0', CLAIMED)).rejects.toMatchObject({ code: 11 });
    expect(findContradictions(model, [a, b, c])).toEqual([]);
  });

  test('is not taken from the machine that has moved on by the node that could not say that it has left', async () => {
    const { model, node } = cluster(['a', 'b'], LAN);
    const [a, b] = [node('a'), node('b')];
    await a.add('source', 'eth0', CLAIMED);
    const moved = await b.add('target', 'eth0', MOVING);
    fateOf = () => 'fails';
    await a.delAtOnce('source').catch(() => {});
    fateOf = () => 'arrives';
    expect(a.add('another', 'eth0', CLAIMED)).rejects.toMatchObject({ code: 11 });
    expect(await a.add('back', 'eth0', MOVING)).toEqual(moved);
    await b.delAtOnce('target');
    for (const one of [a, b]) await one.tend(RETURNING);
    expect(findContradictions(model, [a, b])).toEqual([]);
  });

  test('is not taken by a second pod of the node where the machine is that has moved', async () => {
    const { model, node, changes } = cluster(['a', 'b'], LAN);
    const [a, b] = [node('a'), node('b')];
    model.put('apis/k8s.cni.cncf.io/v1alpha1/namespaces/ns/ipamclaims/vm', {
      metadata: { name: 'vm', uid: 'claim-1' },
    });
    await a.add('before', 'eth0', CLAIMED);
    await a.delAtOnce('before');
    const restore = model.backup();
    await a.add('source', 'eth0', CLAIMED);
    await b.add('target', 'eth0', MOVING);
    changes(20);
    for (const one of [a, b]) await one.tend(RETURNING);
    restore();
    expect(b.add('second', 'eth0', MOVING)).rejects.toMatchObject({ code: 11 });
    for (const one of [b, a, b]) await one.tend(RETURNING);
    expect(findContradictions(model, [a, b])).toEqual([]);
  });

  test('stays with the pod that took it up on the same node after the backup', async () => {
    const { model, node, changes } = cluster(['a', 'b'], LAN);
    const [a, b] = [node('a'), node('b')];
    const kept = await a.add('web-0-first', 'eth0', ORDINAL);
    await a.delAtOnce('web-0-first');
    const restore = model.backup();
    expect(await a.add('web-0-second', 'eth0', ORDINAL)).toEqual(kept);
    changes(20);
    for (const one of [a, b]) await one.tend(RETURNING);
    restore();
    for (const at of [0, 1000, 2000]) {
      now = at;
      for (const one of [a, b]) await one.tend(RETURNING);
    }
    expect(await b.add('web-0-third', 'eth0', ORDINAL)).not.toEqual(kept);
    expect(findContradictions(model, [a, b])).toEqual([]);
  });

  test('goes back though its object changes at that moment', async () => {
    const { model, node, pathOf } = cluster(['a', 'b'], LAN);
    const a = node('a');
    const [kept = ''] = await a.add('web-0', 'eth0', ORDINAL);
    await a.delAtOnce('web-0');
    await a.tend(RETURNING);
    now = 600;
    acts = async () => {
      acts = async () => model.put(pathOf('addresses'), { ...model.objects.get(pathOf('addresses')) });
    };
    await a.tend(RETURNING);
    await a.tend(RETURNING);
    expect([a.blocks(), pathOf('addresses')]).toEqual([[], '']);
    expect(kept).not.toBe('');
  });
});

describe('a block that was claimed after the backup', () => {
  test('is leased by no other node where the backup names one that had given it back', async () => {
    const { model, node, changes } = cluster(['a', 'b'], ONE_BLOCK);
    const [a, b] = [node('a'), node('b')];
    await a.add('p');
    const restore = model.backup();
    a.del('p');
    expect((await a.tend(RETURNING)).returned).toHaveLength(1);
    changes(20);
    for (const id of ids(5, 'q')) await b.add(id);
    await a.tend(RETURNING);
    restore();
    for (const id of ids(5, 'r')) expect(a.add(id)).rejects.toMatchObject({ code: 11 });
    expect(await b.tend(RETURNING)).toMatchObject({ lost: [] });
    await a.tend(RETURNING);
    expect(findContradictions(model, [a, b])).toEqual([]);
  });

  test.each(['lost', 'dies after'] as const)(
    'is leased by no other node when a request for it has the fate "%s"',
    async fate => {
      for (const nth of [1, 2, 3, 4, 5, 6]) {
        const { model, node, changes } = cluster(['a', 'b'], ONE_BLOCK);
        const [a, b] = [node('a', { disk: `a${nth}` }), node('b', { disk: `b${nth}` })];
        await a.tend(RETURNING);
        const restore = model.backup();
        changes(20);
        for (const id of ids(5, 'q')) await b.add(id);
        await a.tend(RETURNING);
        restore();
        let asked = 0;
        fateOf = name => (name === 'a' && ++asked === nth ? fate : 'arrives');
        for (const id of ids(3, 'r')) await a.add(id).catch(() => {});
        expect([nth, findLeasedTwice([a, b])]).toEqual([nth, []]);
        await b.tend(RETURNING);
        expect([nth, findContradictions(model, [a, b])]).toEqual([nth, []]);
      }
    },
  );
});

test('a host that leaves its cluster for a directory claims blocks there', async () => {
  const { node, changes } = cluster(['a']);
  const before = node('a');
  changes(20);
  await before.add('p');
  before.del('p');
  await before.tend(RETURNING);
  const alone = node('a', { store: directoryStore(join(dir, 'store')) });
  // What it knew of its pool was another object's.
  expect(alone.add('q')).rejects.toMatchObject({ code: 11 });
  now = 1700;
  expect(await alone.add('q')).toHaveLength(1);
});
