import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { sweepGivenUp, sweepUnfinished, unfinishedName } from '../../../src/files/unfinished.ts';
import { ROOT } from '../../helpers/source-tree.ts';

const HOUR_MS = 3_600_000;

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

/** @param ageMs negative for one of the future */
function put(name: string, ageMs = 0): string {
  const file = path.join(dir, name);
  fs.writeFileSync(file, 'half');
  const time = new Date(Date.now() - ageMs);
  fs.utimesSync(file, time, time);
  return name;
}

/** Puts a file in its place in a process that is killed between writing and renaming it. */
async function killWriter(): Promise<string> {
  const preload = path.join(ROOT, 'test/fixtures/kill-at-rename.ts');
  const code = `(await import(${JSON.stringify(path.join(ROOT, 'src/files/put-file.ts'))})).putFile(process.env.FILE, 'text')`;
  const child = Bun.spawn([process.execPath, '--preload', preload, '-e', code], {
    env: { ...process.env, FILE: path.join(dir, 'target'), KILL_AT: '/target' },
    stderr: 'pipe',
  });
  await child.exited;
  expect(child.signalCode).toBe('SIGKILL');
  const [name = '', ...more] = fs.readdirSync(dir);
  expect([more, fs.readFileSync(path.join(dir, name), 'utf8')]).toEqual([[], 'text']);
  return name;
}

describe('sweepUnfinished()', () => {
  test('removes at once the files of a process that was killed before it could rename them', async () => {
    const name = await killWriter();
    expect(sweepUnfinished(dir)).toEqual([name]);
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  test('keeps files of this process and of other live ones, whatever the clock says', () => {
    const names = [put(unfinishedName()), put(unfinishedName(), HOUR_MS)];
    const [, , pidns] = fs.readlinkSync('/proc/self/ns/pid').match(/(\[)(\d+)/) ?? [];
    const start = fs.readFileSync(`/proc/${process.ppid}/stat`, 'latin1').split(') ')[1]?.split(' ')[19];
    names.push(put(`.catena-${process.ppid}-${start}-${pidns}-1.tmp`, HOUR_MS));
    expect(sweepUnfinished(dir)).toEqual([]);
    expect(fs.readdirSync(dir).sort()).toEqual(names.sort());
  });

  test('identifies a process by its start time, since ids are reused', () => {
    const name = put(unfinishedName().replace(/^(\.catena-\d+-)\d+/, '$11'));
    expect(sweepUnfinished(dir)).toEqual([name]);
  });

  test('gives writers of another process id namespace ten minutes, past or future', () => {
    const foreign = (n: number) => `.catena-1-5-4026530000-${n}.tmp`;
    put(foreign(1));
    const old = [put(foreign(2), HOUR_MS), put(foreign(3), -HOUR_MS)];
    expect(sweepUnfinished(dir).sort()).toEqual(old);
    expect(fs.readdirSync(dir)).toEqual([foreign(1)]);
  });

  test.each([
    'testnet-c1-eth0',
    '.tmp',
    '.catena-lease',
    '.catena-1.tmp',
    '.catena-1-2-3-4.tmp.json',
    'x.catena-1-2-3-4.tmp',
    '.1-2.tmp',
  ])('keeps %s, which is not one of our names', name => {
    put(name, HOUR_MS);
    expect(sweepUnfinished(dir)).toEqual([]);
    expect(fs.readdirSync(dir)).toEqual([name]);
  });

  test('removes a symbolic link, never its target', () => {
    const [name, target] = ['.catena-1-5-4026530000-1.tmp', path.join(dir, 'target')];
    fs.writeFileSync(target, '');
    fs.symlinkSync(target, path.join(dir, name));
    fs.lutimesSync(path.join(dir, name), 0, 0);
    expect(sweepUnfinished(dir)).toEqual([name]);
    expect(fs.readdirSync(dir)).toEqual(['target']);
  });

  test('treats a missing directory as empty', () => {
    expect(sweepUnfinished(path.join(dir, 'none'))).toEqual([]);
  });
});

describe('sweepGivenUp()', () => {
  test('removes old half-written files by their names, and directories too', () => {
    put('a.new', HOUR_MS);
    put('b.new');
    put('c', HOUR_MS);
    fs.mkdirSync(path.join(dir, 'd.new/e'), { recursive: true });
    fs.utimesSync(path.join(dir, 'd.new'), 0, 0);
    sweepGivenUp(dir, name => name.endsWith('.new'));
    expect(fs.readdirSync(dir).sort()).toEqual(['b.new', 'c']);
  });
});
