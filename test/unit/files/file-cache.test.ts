// Which files does the watch read again, and which does it not even look at?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { FileCache } from '../../../src/files/file-cache.ts';

const LONG_AGO = new Date(Date.now() - 60_000);

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

interface Value {
  readonly text: string;
}

function makeCache(isLasting?: (value: Value, hasChanged: boolean) => boolean) {
  let reads = 0;
  const cache = new FileCache((file: string): Value | undefined => {
    reads += 1;
    const text = fs.readFileSync(file, 'utf8');
    return text === 'half' ? undefined : { text };
  }, isLasting);
  const list = (scope: 'all' | 'new') =>
    cache
      .list([dir], scope)
      .map(({ text }) => text)
      .sort();
  return { list, reads: () => reads };
}

/** A file of long ago, in a directory that nothing has changed since. */
function write(name: string, text: string, at = LONG_AGO): void {
  fs.writeFileSync(path.join(dir, name), text);
  fs.utimesSync(path.join(dir, name), at, at);
  fs.utimesSync(dir, LONG_AGO, LONG_AGO);
}

describe('FileCache', () => {
  test('reads a file again when it has changed', () => {
    const { list, reads } = makeCache();
    write('a', 'one');
    expect([list('all'), list('all'), reads()]).toEqual([['one'], ['one'], 1]);
    write('a', 'three');
    expect(list('all')).toEqual(['three']);
  });

  test('looks at no file of a directory that has not changed, when only new ones are asked for', () => {
    const { list } = makeCache();
    write('a', 'one');
    list('all');
    write('a', 'three');
    expect([list('new'), list('all')]).toEqual([['one'], ['three']]);
  });

  test('finds new files, and those that are gone, among others that it does not look at', () => {
    const { list, reads } = makeCache();
    for (const name of ['a', 'b', 'c']) write(name, name);
    list('all');
    fs.writeFileSync(path.join(dir, 'd'), 'd');
    fs.rmSync(path.join(dir, 'b'));
    expect([list('new'), reads()]).toEqual([['a', 'c', 'd'], 4]);
  });

  test('looks again at a file that had just been written, and at one that could not be used', () => {
    const { list } = makeCache();
    write('young', 'one', new Date());
    write('torn', 'half');
    expect(list('all')).toEqual(['one']);
    write('young', 'three');
    write('torn', 'whole');
    expect(list('new')).toEqual(['three', 'whole']);
  });

  test('looks again at what does not last, as the change of its directory tells', () => {
    const { list } = makeCache((_, hasChanged) => !hasChanged);
    write('a', 'one');
    list('all');
    write('a', 'three');
    expect(list('new')).toEqual(['one']);
    fs.utimesSync(dir, new Date(), new Date());
    expect(list('new')).toEqual(['three']);
  });

  test('passes over a link to itself, and what is no file', () => {
    const { list } = makeCache();
    fs.mkdirSync(path.join(dir, 'folder'));
    fs.symlinkSync('loop', path.join(dir, 'loop'));
    Bun.spawnSync(['mkfifo', path.join(dir, 'fifo')]);
    write('a', 'one');
    expect(list('all')).toEqual(['one']);
  });

  test('lists nothing of a directory that is missing, and finds it when it is there', () => {
    const { list } = makeCache();
    fs.rmSync(dir, { recursive: true });
    expect([list('all'), list('new')]).toEqual([[], []]);
    fs.mkdirSync(dir);
    write('a', 'one');
    expect(list('new')).toEqual(['one']);
  });
});
