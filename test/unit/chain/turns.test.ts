import { describe, expect, test } from 'bun:test';
import { AsyncLocalStorage } from 'node:async_hooks';
import { alone, inTurn } from '../../../src/chain/turns.ts';

/** Work that ends when it is told to; what began and ended is written down. */
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
const on = (containerId: string, network = 'a') => ({ network, containerId });
const newPlace = () => ({ cacheDir: `/nowhere/${places++}` });

describe('inTurn()', () => {
  test('does the work for one container in order, and for others at once', async () => {
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

  test('goes on after work that failed', async () => {
    const { work, end } = makeWork();
    const place = newPlace();
    const failing = inTurn(on('c1'), place, work('a')).catch(error => error.message);
    const next = inTurn(on('c1'), place, work('b'));
    await end('a', new Error('no'));
    await end('b');
    expect([await failing, await next]).toEqual(['no', 'b']);
  });

  test('does not wait for the work that it is part of', async () => {
    const place = newPlace();
    const inner = async () => 'inner';
    const nested = inTurn(on('c1'), place, () => inTurn(on('c1'), place, inner));
    expect(await nested).toBe('inner');
  });

  test('waits when it is only begun from work that is over', async () => {
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

describe('alone()', () => {
  test('neither waits for another network nor makes it wait', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn(on('c1', 'f'), place, work('hanging')),
      inTurn(on('c1', 'a'), place, work('of its container')),
      alone('a', place, work('gc a')),
      inTurn(on('c2', 'b'), place, work('b')),
      inTurn(on('c2', 'a'), place, work('a')),
    ];
    expect(journal).toEqual(['begin hanging', 'begin gc a', 'begin b']);
    await end('b');
    expect(journal.at(-1)).toBe('end b');
    await end('gc a');
    expect(journal.at(-1)).toBe('begin a');
    await end('a');
    await end('hanging');
    expect(journal.at(-1)).toBe('begin of its container');
    await end('of its container');
    await Promise.all(all);
  });

  test('deletes nothing of a container while other work for it runs, and makes later work for it wait', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn(on('c1', 'f'), place, work('other')),
      alone('a', place, () => inTurn(on('c1'), place, work('deletion'))),
      inTurn(on('c1'), place, work('later')),
    ];
    expect(journal).toEqual(['begin other']);
    await end('other');
    expect(journal.at(-1)).toBe('begin deletion');
    await end('deletion');
    expect(journal.at(-1)).toBe('begin later');
    await end('later');
    await Promise.all(all);
  });

  test('waits for all, and all that comes later waits for it', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn(on('c1'), place, work('a')),
      inTurn(on('c2'), place, work('b')),
      alone('a', place, work('gc')),
      inTurn(on('c3'), place, work('c')),
      alone('a', place, work('gc2')),
    ];
    expect(journal).toEqual(['begin a', 'begin b']);
    await end('a');
    expect(journal).not.toContain('begin gc');
    await end('b');
    expect(journal.at(-1)).toBe('begin gc');
    await end('gc');
    expect(journal.at(-1)).toBe('begin c');
    await end('c');
    await end('gc2');
    expect(await Promise.all(all)).toEqual(['a', 'b', 'gc', 'c', 'gc2']);
  });

  test('lets the work that it consists of pass', async () => {
    const place = newPlace();
    expect(await alone('a', place, () => inTurn(on('c1'), place, async () => 'deleted'))).toBe('deleted');
  });
});
