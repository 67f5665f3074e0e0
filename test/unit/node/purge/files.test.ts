// Does a purge take our files alone, even from a directory that we share by mistake?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { purgeFiles } from '../../../../src/node/purge/files.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-purge-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

test('locks of others stay if the run directory is /run', () => {
  const ours = ['watch.lock', 'between.lock', 'bridge-4026531840-cni0.lock', 'host-access-4026531840.lock'];
  const others = ['xtables.lock', 'crond.lock', 'apt-1.lock.d', 'lock'];
  for (const name of [...ours, ...others]) fs.writeFileSync(join(dir, name), '');
  purgeFiles(
    { runDir: dir, stateDir: dir, leaseDirs: [], binDirs: [], shared: [], types: ['bridge'] },
    false,
  );
  expect(fs.readdirSync(dir).sort()).toEqual(others.toSorted());
});
