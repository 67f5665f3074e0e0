import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { homesOf, readSwap } from '../../../../src/lab/compare/scene.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-swap-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));
beforeAll(() => {
  for (const name of ['bridge', 'tuning', 'other']) fs.writeFileSync(join(dir, name), '');
});

const LIST = parseNetwork(
  JSON.stringify({
    cniVersion: '1.0.0',
    name: 'net',
    plugins: [
      { type: 'bridge', ipam: { type: 'host-local' } },
      { type: 'tuning' },
      { type: 'tuning', mtu: 1400 },
    ],
  }),
);

describe('readSwap()', () => {
  test('swaps all plugins of the list that a directory contains', () => {
    expect(readSwap(LIST, dir, undefined)).toEqual({ target: dir, types: ['bridge', 'tuning'] });
    expect(homesOf(readSwap(LIST, dir, undefined))).toEqual([dir]);
  });

  test('swaps the plugin named like an executable, or the given one', () => {
    const file = (name: string) => join(dir, name);
    expect(readSwap(LIST, file('bridge'), undefined)).toEqual({ target: file('bridge'), types: ['bridge'] });
    expect(readSwap(LIST, file('other'), 'host-local')).toMatchObject({ types: ['host-local'] });
    expect(readSwap(LIST, file('other'), '0')).toEqual({ target: file('other'), types: ['bridge'] });
    expect(readSwap(LIST, file('other'), '2')).toEqual({
      target: file('other'),
      types: ['tuning'],
      index: 2,
    });
  });

  test.each([
    ['/nonexistent', undefined, 'it does not exist'],
    ['/proc/version/file', undefined, 'it does not exist'],
    [() => join(dir, 'other'), undefined, 'the list has no plugin "other", but bridge, host-local, tuning'],
    [
      () => dir,
      'portmap',
      'Cannot use --plugin "portmap": the list has bridge, host-local, tuning, and indexes 0 to 2',
    ],
    [() => dir, 'host-local', 'Cannot find plugin "host-local"'],
    [() => tmpdir(), undefined, 'it has none of bridge'],
  ])('refuses missing files', (target, link, gist) => {
    expect(() => readSwap(LIST, typeof target === 'string' ? target : target(), link)).toThrow(gist);
  });
});
