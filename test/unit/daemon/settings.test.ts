import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { DAEMON_LIMITS, readSettings, watchSettings } from '../../../src/daemon/settings.ts';

let file: string;
beforeEach(() => {
  file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'cat-settings-')), 'daemon.json');
});
afterEach(() => fs.rmSync(path.dirname(file), { recursive: true }));

describe('readSettings()', () => {
  test('changes what the file names and nothing else', () => {
    fs.writeFileSync(file, '{"workers": 9, "memoryPerWorkerMiB": 64, "queue": 0}');
    const { pool, server } = readSettings(file);
    expect(pool).toEqual({ ...DAEMON_LIMITS.pool, workers: 9, bytes: 64 * 1024 * 1024 });
    expect(server).toEqual({ ...DAEMON_LIMITS.server, queue: 0 });
  });

  test.each([
    ['is no JSON', '{', 'JSON'],
    ['has an unknown key', '{"worker": 1}', 'worker'],
    ['has a number that makes no sense', '{"workers": 0}', 'workers'],
  ])('refuses a file that %s', (_what, text, word) => {
    fs.writeFileSync(file, text);
    expect(() => readSettings(file)).toThrow(word);
    expect(() => readSettings(file)).toThrow(file);
  });

  test('refuses a file that is not there', () => {
    expect(() => readSettings(file)).toThrow(`Cannot read settings "${file}"`);
  });
});

describe('watchSettings()', () => {
  test('applies a file that changes, and reports one that went bad', async () => {
    fs.writeFileSync(file, '{"workers": 1}');
    const told: (number | string)[] = [];
    const stop = watchSettings(
      file,
      DAEMON_LIMITS,
      ({ pool }) => told.push(pool.workers),
      problem => told.push(problem),
    );
    const write = async (text: string): Promise<void> => {
      const before = told.length;
      // A new file in its place, as editors do; its time differs by more than the clock of the file system can tell.
      for (let i = 1; told.length === before && i < 200; i++) {
        fs.writeFileSync(`${file}.new`, text);
        fs.utimesSync(`${file}.new`, i, Date.now() / 1000 + i);
        fs.renameSync(`${file}.new`, file);
        await Bun.sleep(300);
      }
    };
    await write('{"workers": 2}');
    await write('{"workers": "many"}');
    stop();
    expect(told[0]).toBe(2);
    expect(told.some(one => String(one).startsWith('Cannot use settings'))).toBe(true);
  });
});
