// Do all checks pass? Lints, type-checks, builds and runs tests, those of the kernel each in a process and on a machine of its own.
//
//   npm run check                           what needs neither a build nor root
//   npm test                                that, and every behaviour of every plugin, command and runtime
//   npm run test:all                        that, and twins, damages, faults at every point, random actors and inputs
//   npm test -- unit/chain netns/bridge     only test files whose path contains one of these, of whichever command
//
// rings.ts says which file belongs to which command. CATENA_TEST_JOBS sets how many files run at a time (default: the cores,
// and up to three times as many while those files wait).

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { needsChromium, unpackChromium } from './helpers/chromium.ts';
import { type Finished, TEST_PATH } from './helpers/command.ts';
import { deadline } from './helpers/deadline.ts';
import { installTestPackages } from './helpers/debian.ts';
import { needsDhcpServers, unpackDhcpServers } from './helpers/dhcp-packages.ts';
import { needsFirewalld, unpackFirewalld } from './helpers/firewalld-packages.ts';
import { parseJunit, type TestOutcome } from './helpers/junit.ts';
import { sweepLeftovers } from './helpers/namespace.ts';
import { readOptions } from './helpers/options.ts';
import { findOwnMachine, type OwnMachine } from './helpers/own-machine.ts';
import { needsPromtool, unpackPromtool } from './helpers/promtool.ts';
import { needsRuntimes, unpackRuntimes } from './helpers/runtimes.ts';
import { needsShells, unpackShells } from './helpers/shells.ts';
import { ROOT } from './helpers/source-tree.ts';
import { LOOK_EVERY_MS, now, type Span, spareCores, takenByOthers, wasQuiet } from './load.ts';
import { ALONE, includes, NEEDS_ZOD, needsExecutables, type Ring, ringOf, testFiles } from './rings.ts';
import { longestFirst, rememberTimes, renderFolders, renderSlowest, type Time } from './times.ts';

const FILE_DEADLINE_MS = 15 * 60_000;
const TEST_DEADLINE_MS = 120_000;
const SLOWEST = 20;
/** What stands in for zod in the executables. */
const QUICK_ZOD = ['--preload=./test/quick-zod.ts'];
/** Of what a failed file said, the lines that are said again. */
const LAST_LINES = 60;
/** Tests of one file that run beside each other: they wait for the kernel and for processes three quarters of their time. */
const TESTS_AT_ONCE = 4;
const BUN = [process.execPath];
/** GC keeps what a process that it cannot see may use, so that it must see all of them to collect anything without a record. */
const SEES_ALL = ['test/netns/garbage.test.ts'];
/** It packs Bun for other targets, which npm fetches: a network namespace of its own would have no way there. */
const REACHES_REGISTRY = ['test/e2e/release.test.ts'];
const CORES = Number(process.env.CATENA_TEST_JOBS) || os.availableParallelism();
/** Files at a time while cores idle. A number that was asked for is kept to. */
const AT_MOST = Number(process.env.CATENA_TEST_JOBS) || 3 * CORES;
/** Processes that fast tests share, which wait half of their time. */
const SHARED = Number(process.env.CATENA_TEST_JOBS) || 2 * CORES;
/** Bun's own list of times, by which it begins with the longest of those files that share a process. */
const TIMINGS = 'node_modules/.cache/catena-check-times.json';

/**
 * What shells and CI set for other programs, and ours or Bun would use as well: a proxy even for requests to a test's own server, a trace to
 * continue, a cluster to ask, a width.
 */
const FOR_OTHERS =
  /^((https?|all|no)_proxy|(OTEL|CNI|KUBERNETES_SERVICE)_.*|KUBECONFIG|NETCONFPATH|CAP_ARGS|TRACEPARENT|NOTIFY_SOCKET|COLUMNS|FORCE_COLOR)$/i;

/** Packages that are unpacked instead of installed, and the test files that need them. */
const UNPACKED = [
  { needs: needsRuntimes, unpack: unpackRuntimes },
  { needs: needsChromium, unpack: unpackChromium },
  { needs: needsShells, unpack: unpackShells },
  { needs: needsDhcpServers, unpack: unpackDhcpServers },
  { needs: needsFirewalld, unpack: unpackFirewalld },
  { needs: needsPromtool, unpack: unpackPromtool },
];

const { values, positionals: filters } = readOptions({
  allowPositionals: true,
  options: { check: { type: 'boolean' }, all: { type: 'boolean' } },
});
const command: Ring = values.all ? 'all' : values.check ? 'check' : 'test';
const begun = performance.now();
const total = { passed: 0, failed: 0, skipped: new Map<string, string[]>() };
const times = new Map<string, Time>();
const spans: Span[] = [];
const unsteady: { readonly file: string; readonly span: Span; readonly alone: boolean }[] = [];
/** What failed and how, which is said again at the end: what keeps a log often keeps only its end. */
const failures: string[] = [];
let ran = 0;
// Some tests are another user, who runs what the build makes and reads what tests write.
process.umask(0o022);
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-test-'));
try {
  await main();
} catch (error) {
  total.failed++;
  say(`Cannot run the tests: ${error}`);
} finally {
  fs.rmSync(work, { recursive: true, force: true });
  await sweepLeftovers().catch(error => say(`Cannot remove the garbage of ended tests: ${error}`));
}
finish();

async function main(): Promise<void> {
  const selected = testFiles().filter(file => {
    return filters.length > 0
      ? filters.some(filter => file.includes(filter))
      : includes(command, ringOf(file) ?? 'all');
  });
  if (selected.length === 0) throw new Error(`no test file matches "${filters.join('" or "')}"`);
  const fast = selected.filter(file => ringOf(file) === 'check');
  const slow = selected.filter(file => ringOf(file) !== 'check');
  const linted = Promise.all(filters.length > 0 ? [] : lint());
  const [built] = await Promise.all([
    slow.some(needsExecutables) ? check('build', [...BUN, 'plugins/build/build.ts']) : true,
    ...(slow.length > 0 ? [provide(slow)] : []),
  ]);
  const machine = await findOwnMachine();
  if (slow.length > 0 && machine.notice !== undefined) say(machine.notice);
  if (!built) say('tests that need the executables do not run');
  await runAll(fast, built ? slow : slow.filter(file => !needsExecutables(file)), machine);
  await linted;
  rememberTimes(times);
}

/** Programs that tests need, as far as this user can install or unpack them. */
async function provide(files: readonly string[]): Promise<void> {
  const packages = await installTestPackages();
  if (packages !== undefined) say(packages);
  for (const { needs, unpack } of UNPACKED) {
    const failure = files.some(needs) ? await unpack() : undefined;
    if (failure !== undefined) say(`${failure}; tests that need them are skipped`);
  }
}

function lint(): Promise<boolean>[] {
  const bin = (name: string): string => path.join(ROOT, 'node_modules/.bin', name);
  return [
    check('lint', [bin('biome'), 'check', '.']),
    check('types', [bin('tsc'), '--noEmit']),
    check('types of the page', [bin('tsc'), '--noEmit', '--project', 'src/ui/page']),
  ];
}

interface Failed {
  readonly file: string;
  readonly span: Span;
  /** What Bun is to load before it. */
  readonly more?: readonly string[];
}

/**
 * Runs the files that share processes; all of them once more with what stands in for zod in the executables.
 * @returns those that failed, which are to run once more
 */
async function runFast(files: readonly string[], machine: OwnMachine): Promise<Failed[]> {
  if (files.length === 0) return [];
  const { failed, span } = await runShared('fast tests', files, machine, []);
  if (command === 'all' && filters.length === 0) {
    const quick = files.filter(file => !NEEDS_ZOD.includes(file));
    const wrong = await runShared('fast tests, with zod as in the executables', quick, machine, QUICK_ZOD);
    return [
      ...failed.map(file => ({ file, span })),
      ...wrong.failed.map(file => ({ file, span: wrong.span, more: QUICK_ZOD })),
    ];
  }
  return failed.map(file => ({ file, span }));
}

/** @returns the files of which a test failed, which are not counted yet */
async function runShared(
  name: string,
  files: readonly string[],
  machine: OwnMachine,
  more: readonly string[],
): Promise<{ readonly failed: string[]; readonly span: Span }> {
  const { tmp, outcomes, finished, span } = await runBun(files, machine, [
    ...[`--parallel=${Math.min(SHARED, files.length)}`, '--no-isolate', '--only-failures', ...more],
    ...(filters.length > 0 || more.length > 0 ? [] : [`--timings=${TIMINGS}`, '--update-timings']),
  ]);
  fs.rmSync(tmp, { recursive: true, force: true });
  const failed = files.filter(file => outcomes.some(one => one.file === file && one.status === 'failed'));
  const whole = files.filter(file => !failed.includes(file));
  for (const file of whole)
    addToTotal(
      file,
      outcomes.filter(one => one.file === file),
    );
  // A crash, a broken import or a failing hook leaves no failed test behind, only an exit code.
  const crashed = finished.exitCode !== 0 && failed.length === 0;
  if (crashed) total.failed++;
  const counts = count(outcomes);
  const line = `${name}: ${summary(counts.passed, counts.failed + Number(crashed), counts.skipped)} (${(span.to.at - span.from.at).toFixed(1)} s)`;
  if (finished.exitCode === 0) say(`ok    ${line}`);
  else sayFailure(`${crashed ? 'FAIL ' : 'again'} ${line}`, outputOf(finished));
  return { failed, span };
}

async function runAll(fast: readonly string[], slow: readonly string[], machine: OwnMachine): Promise<void> {
  const sorted = longestFirst(slow);
  const alone: Failed[] = [];
  // Once more under the same conditions: a file that passes then does not need the machine for itself.
  const repeat = (failed: Failed) => {
    queue.unshift(async () => {
      const again = await runFile(failed.file, machine, 'beside others', failed.more);
      if (again === undefined) unsteady.push({ ...failed, alone: false });
      else alone.push(failed);
    });
  };
  const queue: (() => Promise<void>)[] = sorted
    .filter(file => !(file in ALONE))
    .map(file => async () => {
      const span = await runFile(file, machine, 'beside others');
      if (span !== undefined) repeat({ file, span });
    });
  let least = 1;
  const shared = runFast(fast, machine).then(failed => {
    failed.forEach(repeat);
    least = CORES;
  });
  await Promise.all([shared, besideEachOther(queue, () => least)]);
  // What failed of the fast files, where no slow ones were left to run beside.
  await besideEachOther(queue, () => least);
  for (const file of sorted.filter(one => one in ALONE)) {
    const span = await runFile(file, machine, 'beside others');
    if (span !== undefined) alone.push({ file, span });
  }
  for (const failed of alone) await runAlone(failed, machine);
}

/**
 * Runs a number at a time, and more, one at a look, while cores idle, until they are busy again.
 * @param queue what a run adds to it runs next
 */
async function besideEachOther(queue: (() => Promise<void>)[], least: () => number): Promise<void> {
  const running = new Set<Promise<void>>();
  let wanted = least();
  for (let since = now(); queue.length > 0 || running.size > 0; ) {
    while (running.size < Math.max(wanted, least()) && queue.length > 0) {
      const one: Promise<void> = (queue.shift() as () => Promise<void>)().finally(() => running.delete(one));
      running.add(one);
    }
    await Promise.race([...running, Bun.sleep(LOOK_EVERY_MS)]);
    if (now().at - since.at < LOOK_EVERY_MS / 1000) continue;
    const spare = spareCores(since, now());
    if (spare === 'many') wanted = Math.min(AT_MOST, running.size + 1);
    if (spare === 'none') wanted = running.size - 1;
    since = now();
  }
}

/** A file that fails when it runs alone has failed; one that passes then is named at the end. */
async function runAlone(failed: Failed, machine: OwnMachine): Promise<void> {
  const again = await runFile(failed.file, machine, 'alone', failed.more);
  if (again === undefined) unsteady.push({ ...failed, alone: true });
}

/** Runs one file and prints its outcome; only the last run of a file counts. @returns when it ran, if it failed */
async function runFile(
  file: string,
  machine: OwnMachine,
  which: 'beside others' | 'alone',
  more: readonly string[] = [],
): Promise<Span | undefined> {
  const { tmp, outcomes, finished, span } = await runBun([file], machine, more);
  fs.rmSync(tmp, { recursive: true, force: true });
  const counts = count(outcomes);
  // A crash, a broken import or a failing hook leaves no failed test behind, only an exit code.
  if (finished.exitCode !== 0 && counts.failed === 0) counts.failed++;
  const passed = counts.failed === 0;
  if (passed || which === 'alone') {
    addToTotal(file, outcomes);
    if (!passed && !outcomes.some(one => one.status === 'failed')) total.failed++;
  }
  const seconds = span.to.at - span.from.at;
  if (passed) times.set(file, { seconds, cpu: span.cpu });
  const line = `${file}: ${summary(counts.passed, counts.failed, counts.skipped)} (${seconds.toFixed(1)} s, ${span.cpu.toFixed(1)} s of a core)`;
  // A table is a result in itself, for example which executables conform to which rules of the protocol.
  const tables = finished.stdout.split('\n').filter(one => one.startsWith('|'));
  if (passed) {
    say([`ok    ${line}`, ...tables.map(indent)].join('\n'));
    return undefined;
  }
  const output = `${outputOf(finished)}\nexit code ${finished.exitCode}`;
  sayFailure(`${which === 'alone' ? 'FAIL ' : 'again'} ${line}`, output);
  return span;
}

interface Ran {
  readonly tmp: string;
  readonly outcomes: readonly TestOutcome[];
  readonly finished: Finished;
  readonly span: Span;
}

/** Runs files in one process, or a script of Node's, on a machine of their own. */
async function runBun(
  files: readonly string[],
  machine: OwnMachine,
  options: readonly string[],
): Promise<Ran> {
  const tmp = path.join(work, String(++ran));
  fs.mkdirSync(tmp);
  fs.chmodSync(tmp, 0o1777);
  // Fast tests know what another user than root may do. Without namespaces, /tmp is that of all.
  const fast = files.every(one => ringOf(one) === 'check');
  const isOpen = files.some(one => REACHES_REGISTRY.includes(one));
  const prefix =
    isOpen || (fast && machine.notice !== undefined)
      ? []
      : machine.prefix(tmp, {
          processes: files.some(one => SEES_ALL.includes(one)),
          runtimes: files.some(needsRuntimes),
        });
  const report = prefix.length > 0 ? '/tmp/report.xml' : path.join(tmp, 'report.xml');
  const timeoutMs = deadline(TEST_DEADLINE_MS).toFixed();
  const argv = files.some(file => file.endsWith('.mjs'))
    ? [
        ...['node', '--test', '--test-reporter=spec', '--test-reporter-destination=stdout'],
        ...['--test-reporter=junit', `--test-reporter-destination=${report}`, ...files],
      ]
    : [
        ...[...BUN, 'test', '--no-orphans', '--preload=./test/preload.ts', `--timeout=${timeoutMs}`],
        `--max-concurrency=${TESTS_AT_ONCE}`,
        ...[
          '--reporter=junit',
          `--reporter-outfile=${report}`,
          ...options,
          ...files.map(file => `./${file}`),
        ],
      ];
  const others = Object.keys(process.env).filter(name => !isOpen && FOR_OTHERS.test(name));
  const { finished, span } = await attempt([...prefix, ...argv], {
    ...Object.fromEntries(others.map(name => [name, undefined])),
    ...(prefix.length > 0 ? { TMPDIR: '/tmp' } : {}),
    // Plugins and runners leave notes in the run directory, which only root may write to.
    ...(command !== 'all' && filters.length === 0 ? { CATENA_TEST_SAMPLE: '1' } : {}),
    ...(fast ? { CATENA_RUN_DIR: path.join(path.dirname(report), 'run') } : {}),
  });
  const file = path.join(tmp, 'report.xml');
  const outcomes = fs.existsSync(file) ? parseJunit(fs.readFileSync(file, 'utf8')) : [];
  return { tmp, outcomes, finished, span };
}

function outputOf({ stdout, stderr }: Finished): string {
  return `${stdout}${stderr}`.replace(/^\((pass|skip|todo)\).*\n/gm, '').trim();
}

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

function count(outcomes: readonly TestOutcome[]): Counts {
  const of = (status: TestOutcome['status']): number =>
    outcomes.filter(test => test.status === status).length;
  return { passed: of('passed'), failed: of('failed'), skipped: of('skipped') };
}

function addToTotal(file: string, outcomes: readonly TestOutcome[]): void {
  for (const { title, status, reason = '' } of outcomes) {
    if (status !== 'skipped') continue;
    const titles = total.skipped.get(reason) ?? [];
    total.skipped.set(reason, [...titles, `${file}: ${title}`]);
  }
  const { passed, failed } = count(outcomes);
  total.passed += passed;
  total.failed += failed;
}

/** A step that is a single check: passes if the program does, and otherwise shows all its output. */
async function check(name: string, argv: string[]): Promise<boolean> {
  const { finished } = await attempt(argv);
  if (finished.exitCode === 0) {
    total.passed++;
    say(`ok    ${name}`);
    return true;
  }
  total.failed++;
  sayFailure(`FAIL  ${name}`, `${finished.stdout}${finished.stderr}`.trim());
  return false;
}

/** Runs a program to its end or to the deadline, and measures it with all that it waited for. */
async function attempt(
  argv: readonly string[],
  more: Readonly<Record<string, string | undefined>> = {},
): Promise<{ finished: Finished; span: Span }> {
  const from = now();
  const env = { ...process.env, PATH: TEST_PATH, NO_COLOR: '1', ...more };
  const child = Bun.spawn([...argv], { cwd: ROOT, env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' });
  let late = '';
  const limitMs = deadline(FILE_DEADLINE_MS);
  const timer = setTimeout(() => {
    late = `Cannot finish "${argv.join(' ')}" within ${Math.round(limitMs / 1000)} s`;
    child.kill('SIGKILL');
  }, limitMs);
  // What a killed program started may keep its output open.
  const output = Promise.all([child.stdout.text(), child.stderr.text()]);
  await child.exited;
  clearTimeout(timer);
  const [stdout, stderr] = await Promise.race([
    output,
    Bun.sleep(5_000).then(() => ['', 'its output remained open']),
  ]);
  const cpu = Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1e6;
  const span = { from, to: now(), cpu };
  spans.push(span);
  return {
    finished: { exitCode: child.exitCode ?? 124, stdout: stdout ?? '', stderr: `${stderr}${late}` },
    span,
  };
}

function finish(): never {
  const skipped = [...total.skipped.values()].flat().length;
  for (const [reason, titles] of total.skipped) {
    say(`skipped, ${reason}:\n${indent(titles.join('\n'))}`);
  }
  if (times.size > SLOWEST) {
    say(`seconds of files by folder: ${renderFolders(times)}`);
    say(`the slowest files:\n${indent(renderSlowest(times, SLOWEST))}`);
  }
  if (failures.length > 0) say(`what failed, once more:\n${failures.join('\n')}`);
  for (const { file, span, alone } of unsteady) {
    const share = `other programs took ${Math.round(takenByOthers(span, spans) * 100)} % of the cores`;
    // One that passes beside others is unsteady, but no sign that something needs the machine for itself.
    const fails = alone && wasQuiet(span, spans);
    if (fails) total.failed++;
    const passed = alone ? 'passed only when run alone' : 'failed once and passed beside others';
    say(`${fails ? 'FAIL ' : 'noted'} ${file}: unsteady, ${passed}, and ${share} when it failed`);
  }
  say(`in ${Math.round((performance.now() - begun) / 1000)} s`);
  say(summary(total.passed, total.failed, skipped));
  process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);
}

function summary(passed: number, failed: number, skipped: number): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

function indent(text: string): string {
  return text.replace(/^/gm, '      ');
}

function sayFailure(line: string, output: string): void {
  say(`${line}\n${indent(output)}`);
  failures.push(`${line}\n${indent(output.split('\n').slice(-LAST_LINES).join('\n'))}`);
}

function say(line: string): void {
  fs.writeSync(1, `${line}\n`);
}
