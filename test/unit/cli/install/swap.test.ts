// Is an executable old or new wherever a swap is cut off, do its other names stay, and does an undo always bring it back?
import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  findDigest,
  listSwaps,
  placeOf,
  planUndo,
  putSwap,
  undoSwap,
  type WantedSwap,
} from '../../../../src/cli/install/swap.ts';
import { run } from '../../../helpers/command.ts';

const KILLED = join(import.meta.dir, '../../../fixtures/install-killed.ts');
const MOST_STEPS = 40;

const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-swap-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

let count = 0;

/** A directory in which one file has two names, and a candidate elsewhere. */
function makePlace() {
  const dir = join(tmp, String(count++));
  fs.mkdirSync(dir);
  const [target, other, candidate] = ['portmap', 'bridge', '../candidate'].map(name => join(dir, name)) as [
    string,
    string,
    string,
  ];
  fs.writeFileSync(target, 'old', { mode: 0o755 });
  fs.linkSync(target, other);
  fs.writeFileSync(candidate, 'new');
  return { dir, target, other, candidate };
}

function wanted({ target, candidate }: { target: string; candidate: string }): WantedSwap {
  return { target, candidate, before: findDigest(target) ?? '', after: findDigest(candidate) ?? '' };
}

const read = (path: string) => fs.readFileSync(path, 'utf8');
const undo = (target: string, force = false) => undoSwap(target, force);
const killed = async (verb: string, step: number, what: WantedSwap) =>
  (await run([process.execPath, KILLED, verb, String(step), JSON.stringify(what)])).exitCode !== 0;

describe('putSwap()', () => {
  test('installs a copy, keeps the old file, and leaves its other names alone', () => {
    const place = makePlace();
    const inode = fs.statSync(place.target).ino;
    const swap = putSwap(wanted(place));
    expect([read(place.target), read(place.other)]).toEqual(['new', 'old']);
    expect(fs.statSync(place.target).mode & 0o777).toBe(0o755);
    expect(fs.statSync(join(placeOf(place.target).dir, swap.kept)).ino).toBe(inode);
    fs.writeFileSync(place.candidate, 'changed');
    expect(read(place.target)).toBe('new');
    expect(undo(place.target)).toMatchObject({ how: 'restored' });
    expect(fs.statSync(place.target).ino).toBe(inode);
    expect(fs.readdirSync(place.dir).sort()).toEqual(['bridge', 'portmap']);
  });

  test('restores a symbolic link as one', () => {
    const place = makePlace();
    const link = join(place.dir, 'tuning');
    fs.symlinkSync('bridge', link);
    putSwap(wanted({ ...place, target: link }));
    expect([read(link), read(place.other), fs.lstatSync(link).isFile()]).toEqual(['new', 'old', true]);
    undo(link);
    expect(fs.readlinkSync(link)).toBe('bridge');
  });

  test('adds a name to a file that is already in the directory under another name', () => {
    const place = makePlace();
    const twin = join(place.dir, 'catena');
    fs.writeFileSync(twin, 'new');
    putSwap(wanted(place));
    expect(fs.statSync(place.target).ino).toBe(fs.statSync(twin).ino);
  });

  test('refuses a file other than the examined one', () => {
    const place = makePlace();
    const before = wanted(place);
    fs.writeFileSync(place.candidate, 'newer');
    expect(() => putSwap(before)).toThrow(`"${place.candidate}" was changed during the examination`);
    fs.writeFileSync(place.candidate, 'new');
    fs.rmSync(place.target);
    fs.writeFileSync(place.target, 'a third party');
    expect(() => putSwap(before)).toThrow(`"${place.target}" was changed during the examination`);
    expect(read(place.target)).toBe('a third party');
  });

  test('leaves the old or the new file when killed before any step, and undo restores the old one', async () => {
    for (let step = 1; step < MOST_STEPS; step++) {
      const place = makePlace();
      const what = wanted(place);
      const wasKilled = await killed('swap', step, what);
      expect(['old', 'new']).toContain(read(place.target));
      expect(read(place.other)).toBe('old');
      if (!wasKilled) {
        expect(step).toBeGreaterThan(8);
        return;
      }
      if (listSwaps(place.target).length) undo(place.target);
      expect(read(place.target)).toBe('old');
      // What was left lying does not keep the next swap from its work.
      putSwap(what);
      expect([read(place.target), listSwaps(place.target).length]).toEqual(['new', 1]);
      undo(place.target);
      expect(fs.readdirSync(place.dir).sort()).toEqual(['bridge', 'portmap']);
    }
    throw new Error('Cannot see an end of the steps');
  });
});

describe('undoSwap()', () => {
  test('reverts one swap at a time', () => {
    const place = makePlace();
    putSwap(wanted(place));
    fs.writeFileSync(place.candidate, 'newest');
    putSwap(wanted(place));
    undo(place.target);
    expect(read(place.target)).toBe('new');
    undo(place.target);
    expect(read(place.target)).toBe('old');
    expect(() => undo(place.target)).toThrow(`Cannot undo the swap of "${place.target}": none is recorded`);
  });

  test('keeps files that were replaced since, unless asked otherwise', () => {
    const place = makePlace();
    putSwap(wanted(place));
    fs.rmSync(place.target);
    fs.writeFileSync(place.target, 'a third party');
    expect(() => planUndo(place.target, false)).toThrow('it has been changed since; --force restores');
    undo(place.target, true);
    expect(read(place.target)).toBe('old');
  });

  test('restores the old file where none is left', () => {
    const place = makePlace();
    putSwap(wanted(place));
    fs.rmSync(place.target);
    undo(place.target);
    expect(read(place.target)).toBe('old');
  });

  test('can be repeated when killed before any step', async () => {
    for (let step = 1; step < MOST_STEPS; step++) {
      const place = makePlace();
      const what = wanted(place);
      putSwap(what);
      const wasKilled = await killed('undo', step, what);
      expect(['old', 'new']).toContain(read(place.target));
      if (!wasKilled) return;
      if (listSwaps(place.target).length) undo(place.target);
      expect(read(place.target)).toBe('old');
    }
    throw new Error('Cannot see an end of the steps');
  });
});
