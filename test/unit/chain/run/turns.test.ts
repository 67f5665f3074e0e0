import { describe, expect, test } from 'bun:test';
import { AsyncLocalStorage } from 'node:async_hooks';
import { inTurn, listRunning, withNoneBegun } from '../../../../src/chain/run/turns.ts';

/** Work that ends on request; what began and ended is written down. */
function makeWork() {
  const journal: string[] = [];
  const finish = new Map<string, (error?: Error) => void>();
  const work = (name: string) => () =>
    new Promise<string>((resolve, reject) => {
      journal.push(`begin ${name}`);
      finish.set(name, error => {
        journal.push(`end ${name}`);
        if (error) reject(error);
        else resolve(name);
      });
    });
  const settle = () => new Promise(resolve => setImmediate(resolve));
  const end = async (name: string, error?: Error) => {
    finish.get(name)?.(error);
    await settle();
  };
  return { journal, work, end };
}
let places = 0;
const on = (containerId: string, network = 'a') => ({ network, containerId, ifname: 'eth0' });
const newPlace = () => ({ cacheDir: `/nowhere/${places++}` });

describe('inTurn()', () => {
  test('serializes work for one container, and runs that for others concurrently', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn(on('c1'), place, work('a')),
      inTurn(on('c1'), place, work('b')),
      inTurn(on('c2'), place, work('c')),
      inTurn(on('c1'), newPlace(), work('d')),
    ];
    expect(journal).toEqual(['begin a', 'begin c', 'begin d']);
    await end('c');
    expect(journal).not.toContain('begin b');
    await end('a');
    expect(journal.at(-1)).toBe('begin b');
    for (const name of ['b', 'd']) await end(name);
    expect(await Promise.all(all)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('keeps the order in which a container was asked for, also while GC holds the first back', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      withNoneBegun('a', place, work('gc')),
      inTurn(on('c1'), place, work('first')),
      inTurn(on('c1', 'b'), place, work('second')),
      inTurn(on('c2', 'b'), place, work('other')),
    ];
    for (const name of ['other', 'gc', 'first', 'second', 'first']) await end(name);
    await Promise.all(all);
    expect(journal.filter(line => line.startsWith('begin'))).toEqual([
      'begin gc',
      'begin other',
      'begin first',
      'begin second',
    ]);
  });

  test('continues after failed work', async () => {
    const { work, end } = makeWork();
    const place = newPlace();
    const failing = inTurn(on('c1'), place, work('a')).catch(error => error.message);
    const next = inTurn(on('c1'), place, work('b'));
    await end('a', new Error('no'));
    await end('b');
    expect([await failing, await next]).toEqual(['no', 'b']);
  });

  test('does not wait for its own parent', async () => {
    const place = newPlace();
    const inner = async () => 'inner';
    const nested = inTurn(on('c1'), place, () => inTurn(on('c1'), place, inner));
    expect(await nested).toBe('inner');
  });

  test('waits when started from work that is already over', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    let later: (() => Promise<string>) | undefined;
    await inTurn(on('c1'), place, async () => {
      const bound = AsyncLocalStorage.snapshot();
      later = () => bound(() => inTurn(on('c1'), place, work('late')));
    });
    const other = inTurn(on('c1'), place, work('other'));
    const late = later?.();
    await end('nothing');
    expect(journal).toEqual(['begin other']);
    await end('other');
    await end('late');
    expect([await other, await late]).toEqual(['other', 'late']);
  });
});

describe('withNoneBegun()', () => {
  test('waits for nothing that runs, and holds back what begins on its network', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn(on('c1'), place, work('hanging')),
      withNoneBegun('a', place, work('gc')),
      inTurn(on('c2'), place, work('a')),
      inTurn(on('c3', 'b'), place, work('b')),
      withNoneBegun('a', place, work('gc2')),
      withNoneBegun('b', place, work('gc b')),
    ];
    expect(journal).toEqual(['begin hanging', 'begin gc', 'begin b', 'begin gc b']);
    expect(listRunning('a', place)).toEqual([{ containerID: 'c1', ifname: 'eth0' }]);
    await end('gc');
    expect(journal.slice(-3)).toEqual(['end gc', 'begin a', 'begin gc2']);
    for (const name of ['gc2', 'gc b', 'a', 'b', 'hanging']) await end(name);
    await Promise.all(all);
  });

  test('does not wait for what waits for its container', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn(on('c1', 'f'), place, work('hanging')),
      inTurn(on('c1'), place, work('waiting')),
      withNoneBegun('a', place, work('gc')),
    ];
    expect(journal).toEqual(['begin hanging', 'begin gc']);
    await end('hanging');
    expect(journal.at(-1)).toBe('end hanging');
    await end('gc');
    expect(journal.at(-1)).toBe('begin waiting');
    await end('waiting');
    await Promise.all(all);
  });
});
