import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { locks } from '../../../../../src/node/doctor/checks/state.ts';
import type { NodeView } from '../../../../../src/node/doctor/finding.ts';
import { findFlockHolder, isFlockAwaited } from '../../../../../src/sys/flock.ts';
import { until } from '../../../../helpers/until.ts';

let dir: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-locks-'));
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

test('a held lock is named, and worse if others wait, but not one that a daemon has as long as it runs', async () => {
  const files = ['watch.lock', 'between.lock', 'bridge.lock'].map(name => path.join(dir, name));
  for (const file of files) fs.writeFileSync(file, '');
  const holders = files.map(file =>
    Bun.spawn(['flock', '--no-fork', file, 'sleep', '60'], { stdout: 'ignore', stderr: 'ignore' }),
  );
  const facts = { networks: () => ({ networks: [] }) };
  const list = (of: string) => fs.readdirSync(of);
  const node = { runDir: dir, facts, list, findAbout: () => undefined } as unknown as NodeView;
  try {
    await until(() => files.every(file => findFlockHolder(fs.statSync(file)) !== undefined));
    expect(locks(node)).toMatchObject([
      { severity: 'info', found: expect.stringContaining('/bridge.lock" is held') },
    ]);
    const [file = ''] = files.slice(-1);
    holders.push(Bun.spawn(['flock', '--no-fork', file, 'true'], { stdout: 'ignore', stderr: 'ignore' }));
    await until(() => isFlockAwaited(fs.statSync(file)));
    const mend = `ps -o pid,ppid,lstart,args -p ${holders[2]?.pid}; kill ${holders[2]?.pid}`;
    expect(locks(node)).toMatchObject([
      { severity: 'warning', found: expect.stringContaining(', and others wait: '), mend },
    ]);
  } finally {
    for (const one of holders) one.kill('SIGKILL');
    await Promise.all(holders.map(({ exited }) => exited));
  }
  expect(locks(node)).toBe('no lock is held');
});
