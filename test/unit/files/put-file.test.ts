import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  putFile,
  removeFile,
  replaceFile,
  sweepGivenUp,
  sweepUnfinished,
  unfinishedName,
  writeNewFile,
} from '../../../src/files/put-file.ts';
import { ROOT } from '../../helpers/source-tree.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

describe('putFile()', () => {
  test('creates directories and the file for its owner only, and nothing else', () => {
    const file = path.join(dir, 'a/b/c');
    putFile(file, 'text');
    expect(fs.readFileSync(file, 'utf8')).toBe('text');
    const modes = [file, path.dirname(file)].map(one => fs.statSync(one).mode & 0o777);
    expect(modes).toEqual([0o600, 0o700]);
    expect(fs.readdirSync(path.dirname(file))).toEqual(['c']);
  });

  test('gives the name to a new file and does not change the old one', () => {
    const file = path.join(dir, 'a');
    putFile(file, 'old');
    fs.linkSync(file, path.join(dir, 'b'));
    putFile(file, 'new', { sync: true });
    expect(['a', 'b'].map(name => fs.readFileSync(path.join(dir, name), 'utf8'))).toEqual(['new', 'old']);
  });

  test('removes any file under a given temporary name', () => {
    const [file, unfinished] = [path.join(dir, 'a'), path.join(dir, 'a.new')];
    fs.writeFileSync(unfinished, 'left by a crash');
    putFile(file, 'new', { unfinished });
    expect([fs.readdirSync(dir), fs.readFileSync(file, 'utf8')]).toEqual([['a'], 'new']);
  });

  test.each([
    ['a directory', 'EISDIR', (file: string) => fs.mkdirSync(file)],
    ['a file instead of a directory', 'ENOTDIR', (file: string) => fs.writeFileSync(path.dirname(file), '')],
  ])('names the file that %s blocks, the reason and the remedy, and leaves nothing', (_, code, put) => {
    const parent = path.join(dir, 'sub');
    const file = path.join(parent, 'a');
    if (code === 'EISDIR') fs.mkdirSync(parent);
    put(file);
    const before = fs.readdirSync(dir, { recursive: true });
    const problem = `Cannot write record "${file}": ${code}: `;
    const attempt = () => putFile(file, 'text', { what: 'record' });
    expect(attempt).toThrow(problem);
    expect(attempt).toThrow('; use another path, or move away what is at that one');
    expect(fs.readdirSync(dir, { recursive: true })).toEqual(before);
  });
});

describe('replaceFile()', () => {
  test('lets those read the file who are to', () => {
    const file = path.join(dir, 'a');
    const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    replaceFile(file, 'text', { mode: 0o664, owner });
    const { mode, uid, gid } = fs.statSync(file);
    expect([mode & 0o777, { uid, gid }]).toEqual([0o664, owner]);
  });
});

describe('writeNewFile()', () => {
  test('overwrites nothing', () => {
    const file = path.join(dir, 'a');
    fs.symlinkSync(path.join(dir, 'elsewhere'), file);
    expect(() => writeNewFile(file, 'text')).toThrow('EEXIST');
    expect(fs.readdirSync(dir)).toEqual(['a']);
  });
});

test('removeFile() removes a file or a symbolic link, and ignores a missing one', () => {
  const [file, link] = [path.join(dir, 'file'), path.join(dir, 'link')];
  fs.writeFileSync(file, '');
  fs.symlinkSync('/nowhere', link);
  const tooLong = path.join(dir, 'x'.repeat(256));
  for (const one of [file, link, file, path.join(file, 'below'), tooLong]) removeFile(one);
  expect(fs.readdirSync(dir)).toEqual([]);
});

test('removeFile() keeps a directory, whatever it contains', () => {
  fs.mkdirSync(path.join(dir, 'a/b'), { recursive: true });
  removeFile(path.join(dir, 'a'), 'record');
  expect(fs.readdirSync(path.join(dir, 'a'))).toEqual(['b']);
});

test('removeFile() names the file, the reason and the remedy', () => {
  // Not even root can remove anything there.
  expect(() => removeFile('/proc/self/status', 'record')).toThrow(
    /^Cannot remove record "\/proc\/self\/status": (EPERM|EACCES): .*; let this user write there, or run as root$/,
  );
});

const HOUR_MS = 3_600_000;

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
