import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findFlockHolder } from '../../../src/sys/lock-holder.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'holder-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

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
