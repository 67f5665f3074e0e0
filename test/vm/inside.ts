// What does the guest do once it is up?
//
// Started by init.sh with the plan as its argument. Says how each file did on the second serial port.

import fs from 'node:fs';
import { type Finished, run, TEST_PATH } from '../helpers/command.ts';
import type { FileReport, FileRun, Plan } from './plan.ts';

const REPORTS = '/dev/ttyS1';
// The processor is emulated.
const SLOWNESS = 10;
const FILE_DEADLINE_MS = 30 * 60_000;
const TEST_DEADLINE_MS = SLOWNESS * 60_000;

const plan: Plan = JSON.parse(fs.readFileSync(process.argv[2] ?? '', 'utf8'));
const port = fs.openSync(REPORTS, 'w');
for (const one of plan.runs) fs.writeSync(port, `${JSON.stringify(await runFile(one))}\n`);
fs.closeSync(port);

async function runFile({ file, only }: FileRun): Promise<FileReport> {
  const junit = '/run/junit.xml';
  fs.rmSync(junit, { force: true });
  const started = performance.now();
  const { exitCode, stdout, stderr } = await attempt([
    ...[process.execPath, 'test', `--timeout=${TEST_DEADLINE_MS}`],
    ...['--reporter=junit', `--reporter-outfile=${junit}`],
    ...(only === undefined ? [] : ['-t', only]),
    `./${file}`,
  ]);
  return {
    file,
    exitCode,
    seconds: (performance.now() - started) / 1000,
    output: `${stdout}${stderr}`,
    junit: fs.existsSync(junit) ? fs.readFileSync(junit, 'utf8') : '',
  };
}

async function attempt(argv: readonly string[]): Promise<Finished> {
  const env = { ...process.env, PATH: TEST_PATH, NO_COLOR: '1', CATENA_TEST_SLOWNESS: String(SLOWNESS) };
  try {
    return await run(argv, { cwd: plan.root, timeoutMs: FILE_DEADLINE_MS, env });
  } catch (error) {
    return { exitCode: 124, stdout: '', stderr: String(error) };
  }
}
