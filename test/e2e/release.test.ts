// Does the archive of this machine's system unpack to what runs? (npm run package makes those of all systems.)
import { afterAll, expect } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { releaseFor, renderSums } from '../../plugins/build/package.ts';
import { TARGETS } from '../../plugins/build/targets.ts';
import { run, TEST_PATH } from '../helpers/command.ts';
import { testNeeding } from '../helpers/skip.ts';

const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-release-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

const target = TARGETS.find(({ arch, loader }) => arch === process.arch && fs.existsSync(loader));

testNeeding(
  'a release is whole, runs, and carries its checksum',
  async () => {
    if (target === undefined) return;
    const { file, seen } = await releaseFor(target, tmp, join(tmp, 'runtimes'));
    expect(seen).toMatch(/^ran: catena \d/);
    fs.writeFileSync(join(tmp, 'SHA256SUMS'), renderSums(tmp));
    const checked = await run(['sha256sum', '--check', 'SHA256SUMS'], { cwd: tmp, env: { PATH: TEST_PATH } });
    expect(checked.exitCode).toBe(0);
    expect((await run(['tar', '-xzf', file, '-C', tmp], { timeoutMs: 60_000 })).exitCode).toBe(0);
    const [dir = ''] = fs.readdirSync(tmp).filter(name => fs.existsSync(join(tmp, name, 'bin')));
    const conflist = join(tmp, dir, 'conflists/bridge-full.conflist');
    const validated = await run([
      join(tmp, dir, 'bin/catena'),
      'validate',
      conflist,
      '--bin-dir',
      join(tmp, dir, 'bin'),
    ]);
    expect(validated).toMatchObject({ exitCode: 0, stderr: '' });
    const installed = await run([
      ...[join(tmp, dir, 'bin/catena'), 'install', conflist, '--as-default'],
      ...['--bin-dir', join(tmp, 'bin'), '--conf-dir', join(tmp, 'net.d')],
    ]);
    expect(installed.exitCode).toBe(0);
  },
  target === undefined ? 'needs a system that there are releases for' : undefined,
);
