// How do the fast tests run: without a build, without root, in less than half a minute?
//
//   npm run test:unit                  unit, golden and protocol tests, except those listed below
//   npm run test:unit -- chain/run     only files whose path contains this, listed below or not
//   npm run test:unit -- --quick-zod   with what stands in for zod in the executables

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { listFiles, ROOT } from './helpers/source-tree.ts';

const FOLDERS = ['test/unit', 'test/golden', 'test/protocol'];

/** Files that start hundreds of processes or wait for deadlines; `npm test` runs them. */
const SLOW = [
  'test/unit/chain/records/recover.test.ts',
  'test/unit/delegate/add.test.ts',
  'test/unit/delegate/claims.test.ts',
  'test/unit/delegate/delete.test.ts',
  'test/unit/install/lay.test.ts',
  'test/unit/install/swap.test.ts',
];

const QUICK_ZOD = '--quick-zod';
/** They render schemas, for which the build needs zod itself. */
const NEED_ZOD = [
  'test/unit/explain/list.test.ts',
  'test/unit/foreign/catalog.test.ts',
  'test/unit/foreign/to-zod.test.ts',
  'test/unit/plugins/build/schemas.test.ts',
  'test/unit/reference-json.test.ts',
];

const isQuick = process.argv.includes(QUICK_ZOD);
const filters = process.argv.slice(2).filter(arg => arg !== QUICK_ZOD);
const all = FOLDERS.flatMap(folder => listFiles(folder)).filter(file => {
  return file.endsWith('.test.ts') && !(isQuick && NEED_ZOD.includes(file));
});
const moved = SLOW.filter(file => !all.includes(file));
if (moved.length > 0) throw new Error(`no such file: ${moved.join(', ')}`);
const files =
  filters.length > 0
    ? all.filter(file => filters.some(filter => file.includes(filter)))
    : all.filter(file => !SLOW.includes(file));
if (files.length === 0) throw new Error(`no fast test matches "${filters.join('" or "')}"`);

// Plugins and runners leave notes in the run directory, which only root may write to.
const runDir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-unit-'));
try {
  const options = [
    '--parallel=2',
    '--no-isolate',
    '--preload=./test/preload.ts',
    ...(isQuick ? ['--preload=./test/quick-zod.ts'] : []),
    '--timeout=60000',
    '--only-failures',
  ];
  const { exitCode } = Bun.spawnSync(
    [process.execPath, 'test', ...options, ...files.map(file => `./${file}`)],
    {
      cwd: ROOT,
      env: { ...process.env, CATENA_RUN_DIR: runDir },
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  );
  if (filters.length === 0) process.stdout.write(`left out, because they are slow: ${SLOW.join(', ')}\n`);
  process.exitCode = exitCode;
} finally {
  fs.rmSync(runDir, { recursive: true, force: true });
}
