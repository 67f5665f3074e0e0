import { describe, expect, test } from 'bun:test';
import { AsyncLocalStorage } from 'node:async_hooks';
import { alone, inTurn } from '../../../../src/chain/run/turns.ts';

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
const newPlace = () => ({ cacheDir: `/nowhere/${places++}` });

describe('inTurn()', () => {
  test('serializes work for one container, and runs that for others concurrently', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn('c1', place, work('a')),
      inTurn('c1', place, work('b')),
      inTurn('c2', place, work('c')),
      inTurn('c1', newPlace(), work('d')),
    ];
    expect(journal).toEqual(['begin a', 'begin c', 'begin d']);
    await end('c');
    expect(journal).not.toContain('begin b');
    await end('a');
    expect(journal.at(-1)).toBe('begin b');
    for (const name of ['b', 'd']) await end(name);
    expect(await Promise.all(all)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('continues after failed work', async () => {
    const { work, end } = makeWork();
    const place = newPlace();
    const failing = inTurn('c1', place, work('a')).catch(error => error.message);
    const next = inTurn('c1', place, work('b'));
    await end('a', new Error('no'));
    await end('b');
    expect([await failing, await next]).toEqual(['no', 'b']);
  });

  test('does not wait for its own parent', async () => {
    const place = newPlace();
    const inner = async () => 'inner';
    const nested = inTurn('c1', place, () => inTurn('c1', place, inner));
    expect(await nested).toBe('inner');
  });

  test('waits when started from work that is already over', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    let later: (() => Promise<string>) | undefined;
    await inTurn('c1', place, async () => {
      const bound = AsyncLocalStorage.snapshot();
      later = () => bound(() => inTurn('c1', place, work('late')));
    });
    const other = inTurn('c1', place, work('other'));
    const late = later?.();
    await end('nothing');
    expect(journal).toEqual(['begin other']);
    await end('other');
    await end('late');
    expect([await other, await late]).toEqual(['other', 'late']);
  });
});

describe('alone()', () => {
  test('waits for all, and all later work waits for it', async () => {
    const { journal, work, end } = makeWork();
    const place = newPlace();
    const all = [
      inTurn('c1', place, work('a')),
      inTurn('c2', place, work('b')),
      alone(place, work('gc')),
      inTurn('c3', place, work('c')),
      alone(place, work('gc2')),
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

  test('does not block its own parts', async () => {
    const place = newPlace();
    expect(await alone(place, () => inTurn('c1', place, async () => 'deleted'))).toBe('deleted');
  });
});
