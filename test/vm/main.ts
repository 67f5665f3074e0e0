// Do the tests pass on a kernel with the features that this machine's kernel lacks?
//
//   npm run vm                        only what this machine skips because of its kernel
//   npm run vm -- netns/bridge twin   whole test files whose path contains one of these
//   npm run vm -- twin --only mtu     of these, tests whose title matches
//   npm run vm -- --bench "alone --plugins ipvlan,vlan,vrf"     these groups of the benchmark: ratios, as the processor is emulated
//   npm run vm -- --slowness 30       with longer deadlines than for an emulated processor, on a machine that has other work
//
// Boots Debian's kernel in a virtual machine whose file system is this machine's, read-only: see machine.ts.

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { run, TEST_PATH } from '../helpers/command.ts';
import { parseJunit, type TestOutcome } from '../helpers/junit.ts';
import { readOptions } from '../helpers/options.ts';
import { requiresMachine, runInMachine } from './machine.ts';
import { unpackMachine } from './packages.ts';
import type { FileReport, FileRun } from './plan.ts';

const ROOT = path.resolve(import.meta.dir, '../..');
const KERNEL_REASON = 'skipped: needs a kernel';

const { positionals: filters, values } = readOptions({
  allowPositionals: true,
  options: {
    only: { type: 'string' },
    bench: { type: 'string' },
    slowness: { type: 'string', default: '10' },
  },
});
process.exitCode = await main();

async function main(): Promise<number> {
  const failure = await unpackMachine();
  if (failure !== undefined) say(failure);
  const obstacle = requiresMachine();
  if (obstacle !== undefined) {
    say(`no virtual machine here: it ${obstacle}`);
    return 1;
  }
  if (values.bench !== undefined) return measure(values.bench.split(' '));
  const skipped = await skippedHere(testFiles());
  const runs = filters.length > 0 ? testFiles().map(wholeFile) : onlySkipped(skipped);
  if (runs.length === 0) {
    say(filters.length > 0 ? 'no test file matches' : 'the kernel of this machine has all that tests need');
    return filters.length > 0 ? 1 : 0;
  }
  const started = performance.now();
  const reports: FileReport[] = [];
  await runInMachine({ root: ROOT, runs, slowness: Number(values.slowness) }, report => {
    reports.push(report);
    sayReport(report);
  });
  const outcomes = reports.flatMap(outcomesOf);
  const ran = outcomes.filter(({ status, name }) => status !== 'skipped' && skipped.has(name));
  if (ran.length > 0) say(`ran there, skipped here:\n${indent(ran.map(({ name }) => name).join('\n'))}`);
  const passed = outcomes.filter(({ status }) => status === 'passed').length;
  const failed = reports.filter(hasFailed).length;
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  const files = failed === 0 ? '' : `, ${failed} files failed`;
  say(`${passed} passed${files}, ${ran.length} of them skipped here (${seconds} s with the boot)`);
  return failed > 0 || passed === 0 || reports.length < runs.length ? 1 : 0;
}

/** Runs groups of the benchmark; what it prints is shown as it comes. */
async function measure(words: readonly string[]): Promise<number> {
  let status = 1;
  const runs = [{ file: 'test/bench/main.ts', bench: ['--only', ...words] }];
  await runInMachine({ root: ROOT, runs, slowness: Number(values.slowness) }, ({ exitCode, output }) => {
    status = exitCode;
    say(output);
  });
  return status;
}

/** Test files whose path contains one of the filters. */
function testFiles(): string[] {
  return fs
    .readdirSync(path.join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.test.ts'))
    .map(file => `test/${file}`)
    .filter(file => filters.length === 0 || filters.some(filter => file.includes(filter)))
    .sort();
}

interface SkippedTest {
  readonly file: string;
  readonly title: string;
}

/** The tests that this machine skips because of its kernel, by their name in reports. Runs none. */
async function skippedHere(files: readonly string[]): Promise<Map<string, SkippedTest>> {
  const asking = files.filter(file =>
    /requires(LinkKind|UpperKind|Vlan\w+|Vrf|Sctp)|describeTwins/.test(
      fs.readFileSync(path.join(ROOT, file), 'utf8'),
    ),
  );
  const skipped = new Map<string, SkippedTest>();
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-vm-'));
  try {
    for (const file of asking) {
      const report = path.join(work, 'junit.xml');
      const argv = [
        'test',
        '-t',
        KERNEL_REASON,
        '--reporter=junit',
        `--reporter-outfile=${report}`,
        `./${file}`,
      ];
      // Without a match the exit code is 1, which is a valid answer.
      await run([process.execPath, ...argv], { cwd: ROOT, env: { ...process.env, PATH: TEST_PATH } });
      const xml = fs.existsSync(report) ? fs.readFileSync(report, 'utf8') : '';
      fs.rmSync(report, { force: true });
      for (const { title, reason } of parseJunit(xml)) {
        if (reason?.startsWith('needs a kernel with ')) skipped.set(`${file}: ${title}`, { file, title });
      }
    }
  } finally {
    fs.rmSync(work, { recursive: true });
  }
  return skipped;
}

function wholeFile(file: string): FileRun {
  return values.only === undefined ? { file } : { file, only: values.only };
}

function onlySkipped(skipped: ReadonlyMap<string, SkippedTest>): FileRun[] {
  const tests = [...skipped.values()];
  return [...new Set(tests.map(({ file }) => file))].map(file => {
    const titles = tests.filter(test => test.file === file).map(({ title }) => title);
    return { file, only: titles.map(title => title.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|') };
  });
}

function outcomesOf({ file, junit }: FileReport): (TestOutcome & { name: string })[] {
  return parseJunit(junit).map(outcome => ({ ...outcome, name: `${file}: ${outcome.title}` }));
}

function hasFailed(report: FileReport): boolean {
  return report.exitCode !== 0;
}

function sayReport(report: FileReport): void {
  const count = (status: TestOutcome['status']): number =>
    parseJunit(report.junit).filter(outcome => outcome.status === status).length;
  const line = `${report.file}: ${count('passed')} passed, ${count('failed')} failed (${report.seconds.toFixed(1)} s)`;
  const tables = report.output.split('\n').filter(one => one.startsWith('|'));
  const output = report.output.replace(/^\((pass|skip|todo)\).*\n/gm, '').trim();
  if (hasFailed(report)) say(`FAIL  ${line}\n${indent(output)}\n      exit code ${report.exitCode}`);
  else say([`ok    ${line}`, ...tables.map(indent)].join('\n'));
}

function indent(text: string): string {
  return text.replace(/^/gm, '      ');
}

function say(line: string): void {
  fs.writeSync(1, `${line}\n`);
}
