// What does the guest do once it is up?
// Started by init.sh with the plan as its argument. Reports the outcome of each file on the second serial port.

import fs from 'node:fs';
import { TEST_PATH } from '../helpers/command.ts';
import type { FileReport, FileRun, Plan } from './plan.ts';

const REPORTS = '/dev/ttyS1';
const FILE_DEADLINE_MS = 60 * 60_000;

const plan: Plan = JSON.parse(fs.readFileSync(process.argv[2] ?? '', 'utf8'));
const port = fs.openSync(REPORTS, 'w');
for (const one of plan.runs) fs.writeSync(port, `${JSON.stringify(await runFile(one))}\n`);
fs.closeSync(port);

async function runFile({ file, only, bench }: FileRun): Promise<FileReport> {
  const junit = '/run/junit.xml';
  fs.rmSync(junit, { force: true });
  const started = performance.now();
  const test = [
    ...['test', `--timeout=${plan.slowness * 60_000}`],
    ...['--reporter=junit', `--reporter-outfile=${junit}`],
    ...(only === undefined ? [] : ['-t', only]),
    `./${file}`,
  ];
  const { exitCode, output } = await follow([process.execPath, ...(bench ? [file, ...bench] : test)]);
  return {
    file,
    exitCode,
    seconds: (performance.now() - started) / 1000,
    output,
    junit: fs.existsSync(junit) ? fs.readFileSync(junit, 'utf8') : '',
  };
}

/** Runs a program to completion; its output is copied to the console, to show the progress. */
async function follow(argv: readonly string[]): Promise<{ exitCode: number; output: string }> {
  const child = Bun.spawn([...argv], {
    cwd: plan.root,
    env: { ...process.env, PATH: TEST_PATH, NO_COLOR: '1', CATENA_TEST_SLOWNESS: String(plan.slowness) },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), FILE_DEADLINE_MS);
  let output = '';
  const collect = async (stream: ReadableStream<Uint8Array>): Promise<void> => {
    for await (const chunk of stream) {
      output += Buffer.from(chunk).toString();
      fs.writeSync(1, chunk);
    }
  };
  const collected = Promise.all([collect(child.stdout), collect(child.stderr)]);
  const exitCode = await child.exited;
  clearTimeout(timer);
  // A grandchild may keep the pipes open.
  await Promise.race([collected, Bun.sleep(1_000)]);
  return { exitCode, output };
}
