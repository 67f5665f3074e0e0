// What if another node, an operator or a backup acts between a node's reading of its blocks and what it does then?
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { directoryStore } from '../../src/pools/directory-store.ts';
import { deadline } from '../helpers/deadline.ts';
import { Random } from '../storm/random.ts';
import { apiModel } from './api-model.ts';
import { findContradictions, findLeasedTwice } from './checker.ts';
import { clientOf, DIRECT, type Fate } from './faults.ts';
import { makeSimulatorDir, type NodeOptions, simulatedNode } from './node.ts';

setDefaultTimeout(deadline(60_000));

const ONE_BLOCK = { subnets: [{ ipv4: '10.64.0.0/28' }], blockSize: 16 };
const RETURNING = { lowWater: 0, coolDownS: 0 };

let dir: string;
let now: number;
let fateOf: (node: string) => Fate;
beforeEach(() => {
  dir = makeSimulatorDir('cat-sim-');
  now = 0;
  fateOf = () => 'arrives';
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function cluster(names: readonly string[], spec: NodeOptions['spec'] = ONE_BLOCK) {
  const model = apiModel();
  const draws = new Random(1);
  for (const name of names) model.put(`api/v1/nodes/${name}`, { metadata: { name } });
  const node = (name: string, more: Partial<NodeOptions> = {}) => {
    const api = clientOf(model, { ...DIRECT, fate: () => fateOf(name) });
    const same = { dir, api, spec, pool: 'default', random: () => draws.next(), clock: () => now };
    return simulatedNode({
      name,
      ...same,
      pause: async () => {},
      ...more,
    });
  };
  const changes = (count: number) => {
    for (let i = 0; i < count; i++) model.put('api/v1/nodes/z', { metadata: { name: 'z', count: i } });
  };
  return { model, node, changes };
}

const ids = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

describe('a block that was claimed after the backup', () => {
  test('is leased by nobody else where the backup names one that had given it back', async () => {
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
    'is leased by nobody else when a request for it has the fate "%s"',
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
