// Do processes take turns on a file, and does no process wait forever?

import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { attempt } from '../../../src/cni/errors.ts';
import { findFlockHolder, holdFlock, withFlock } from '../../../src/sys/flock.ts';
import { until } from '../../helpers/until.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'holder-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** What a process has open. */
function filesOf(pid: number): string[] {
  const fds = `/proc/${pid}/fd`;
  return fs.readdirSync(fds).flatMap(fd => attempt(() => fs.readlinkSync(`${fds}/${fd}`)) ?? []);
}

describe('findFlockHolder()', () => {
  test('names the process and its program while it holds the lock', async () => {
    const file = path.join(dir, 'lock');
    fs.writeFileSync(file, '');
    expect(findFlockHolder(fs.statSync(file))).toBeUndefined();
    const child = Bun.spawn(['flock', '--no-fork', file, 'sleep', '30'], {
      stdout: 'ignore',
      stderr: 'ignore',
    });
    let holder: string | undefined;
    for (let i = 0; i < 200 && holder === undefined; i++) {
      await Bun.sleep(10);
      holder = findFlockHolder(fs.statSync(file));
    }
    child.kill('SIGKILL');
    await child.exited;
    expect(holder).toMatch(new RegExp(`^process ${child.pid} \\((flock|sleep)\\)$`));
    expect(findFlockHolder(fs.statSync(file))).toBeUndefined();
  });
});

describe('flock', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'flock-'));
  const file = path.join(dir, 'lock');
  afterAll(() => fs.rmSync(dir, { recursive: true }));

  describe('withFlock()', () => {
    test('returns the result of the function, and releases the lock', () => {
      expect(withFlock(file, () => 7)).toBe(7);
      expect(withFlock(file, () => 8)).toBe(8);
    });

    test('releases the lock when the function throws', () => {
      const failing = () =>
        withFlock(file, () => {
          throw new Error('on purpose');
        });
      expect(failing).toThrow('on purpose');
      expect(withFlock(file, () => 1, { deadlineMs: 0 })).toBe(1);
    });

    test('creates a file that only its owner may open, and hold', () => {
      const plain = path.join(dir, 'plain');
      withFlock(plain, () => undefined);
      expect(fs.statSync(plain).mode & 0o777).toBe(0o600);
    });

    test('creates the file with the given mode and keeps its content', () => {
      const other = path.join(dir, 'other');
      withFlock(other, () => fs.writeFileSync(other, 'kept'), { mode: 0o600 });
      withFlock(other, () => undefined);
      expect(fs.statSync(other).mode & 0o777).toBe(0o600);
      expect(fs.readFileSync(other, 'utf8')).toBe('kept');
    });

    test('follows no symbolic link: its target is neither created nor opened', () => {
      const [link, target] = [path.join(dir, 'link'), path.join(dir, 'target')];
      fs.symlinkSync(target, link);
      for (const content of [undefined, 'kept']) {
        if (content !== undefined) fs.writeFileSync(target, content);
        const take = () => withFlock(link, () => 1, { directoryMode: 0o700 });
        expect(take).toThrow(`Cannot lock "${link}": it is a symbolic link; remove it`);
        expect(fs.existsSync(target)).toBe(content !== undefined);
      }
      expect(fs.readlinkSync(link)).toBe(target);
    });

    test('creates missing directories only on request', () => {
      const deep = path.join(dir, 'a/b/lock');
      expect(() => withFlock(deep, () => 1)).toThrow('ENOENT');
      expect(withFlock(deep, () => 1, { directoryMode: 0o700 })).toBe(1);
      expect(fs.statSync(path.join(dir, 'a')).mode & 0o777).toBe(0o700);
      expect(withFlock(deep, () => 2, { directoryMode: 0o755 })).toBe(2);
      expect(fs.statSync(path.join(dir, 'a')).mode & 0o777).toBe(0o700);
    });

    test('gives up on another holder, and names the file and the holder', () => {
      const waiting = () => withFlock(file, () => withFlock(file, () => undefined, { deadlineMs: 20 }));
      const comm = fs.readFileSync('/proc/self/comm', 'utf8').trim();
      expect(waiting).toThrow(
        `Cannot lock "${file}": process ${process.pid} (${comm}) holds it and did not release it within 0.02 s`,
      );
    });

    test('is the lock of the file that has the name, though the one that was waited for was removed', async () => {
      const removed = path.join(dir, 'removed');
      const release = holdFlock(removed);
      const source = `
      import { holdFlock, withFlock } from '${path.resolve(import.meta.dir, '../../../src/sys/flock.ts')}';
      const file = process.argv.at(-1);
      console.log(withFlock(file, () => holdFlock(file) === undefined));`;
      const script = path.join(dir, 'wait.ts');
      fs.writeFileSync(script, source);
      const child = Bun.spawn([process.execPath, script, removed], { stdout: 'pipe', stderr: 'inherit' });
      await until(() => filesOf(child.pid).includes(removed));
      fs.rmSync(removed);
      release?.();
      expect(await new Response(child.stdout).text()).toBe('true\n');
    });

    test.each([false, true])(
      'excludes other processes: no count is lost (transient: %p)',
      async transient => {
        const counter = path.join(dir, 'counter');
        fs.writeFileSync(counter, '0');
        const source = `
      import fs from 'node:fs';
      import { withFlock } from '${path.resolve(import.meta.dir, '../../../src/sys/flock.ts')}';
      const [file, counter] = process.argv.slice(-2);
      for (let i = 0; i < 50; i++) {
        withFlock(file, () => fs.writeFileSync(counter, String(Number(fs.readFileSync(counter)) + 1)), {
          transient: ${transient},
        });
      }`;
        const script = path.join(dir, 'count.ts');
        fs.writeFileSync(script, source);
        const children = Array.from({ length: 3 }, () =>
          Bun.spawn([process.execPath, script, file, counter], { stderr: 'inherit' }),
        );
        expect(await Promise.all(children.map(child => child.exited))).toEqual([0, 0, 0]);
        expect(fs.readFileSync(counter, 'utf8')).toBe('150');
        expect(fs.existsSync(file)).toBe(!transient);
      },
    );
  });
});
