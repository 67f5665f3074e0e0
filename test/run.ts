// Do all checks pass? Builds, lints, type-checks and runs every test, each file in its own process.
//
//   npm test                                everything
//   npm test -- unit/chain netns/bridge     only test files whose path contains one of these
//   npm test -- --both                      every end-to-end test both ways
//
// End-to-end tests run a second time with the Bun program under all names, as built without a C compiler (CATENA_TEST_FRONT=0):
// short ones always, long ones on one day of several (turns.ts).
//
// CATENA_TEST_JOBS sets how many files run at a time (default: the number of cores, at most two).

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { needsChromium, unpackChromium } from './helpers/chromium.ts';
import { type Finished, run, TEST_PATH } from './helpers/command.ts';
import { installTestPackages } from './helpers/debian.ts';
import { needsDhcpServers, unpackDhcpServers } from './helpers/dhcp-packages.ts';
import { needsFirewalld, unpackFirewalld } from './helpers/firewalld-packages.ts';
import { parseJunit, type TestOutcome } from './helpers/junit.ts';
import { sweepLeftovers } from './helpers/namespace.ts';
import { needsRuntimes, unpackRuntimes } from './helpers/runtimes.ts';
import { needsShells, unpackShells } from './helpers/shells.ts';
import { hasFronts, type Turn, turnWithoutFront } from './turns.ts';

const ROOT = path.resolve(import.meta.dir, '..');
const FILE_DEADLINE_MS = 15 * 60_000;
const TEST_DEADLINE_MS = 60_000;
const BUN = [process.execPath];
const BOTH = '--both';

/** Packages that are unpacked instead of installed, and the test files that need them. */
const UNPACKED = [
  { needs: needsRuntimes, unpack: unpackRuntimes },
  { needs: needsChromium, unpack: unpackChromium },
  { needs: needsShells, unpack: unpackShells },
  { needs: needsDhcpServers, unpack: unpackDhcpServers },
  { needs: needsFirewalld, unpack: unpackFirewalld },
];

interface Total {
  passed: number;
  failed: number;
  readonly skipped: Map<string, string[]>;
}

const total: Total = { passed: 0, failed: 0, skipped: new Map() };
const unsteady: string[] = [];
const postponed: string[] = [];
const filters = process.argv.slice(2).filter(arg => arg !== BOTH);
/** Days since 1970. A file that is selected by name runs both ways. */
const today =
  process.argv.includes(BOTH) || filters.length > 0 ? undefined : Math.floor(Date.now() / 86_400_000);
const reports = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-test-'));
try {
  await main();
} catch (error) {
  total.failed++;
  say(`Cannot run the tests: ${error}`);
} finally {
  fs.rmSync(reports, { recursive: true, force: true });
  await sweepLeftovers().catch(error => say(`Cannot remove the garbage of ended tests: ${error}`));
}
finish();

async function main(): Promise<void> {
  const packages = await installTestPackages();
  if (packages !== undefined) say(packages);
  for (const { needs, unpack } of UNPACKED) {
    const failure = testFiles().some(needs) ? await unpack() : undefined;
    if (failure !== undefined) say(`${failure}; tests that need them are skipped`);
  }
  const inNamespaces = await namespacePrefix();
  const built = await check('build', [...BUN, 'plugins/build/build.ts']);
  const files = testFiles().filter(file => built || !needsExecutables(file));
  if (!built) say('tests that need the executables do not run');
  if (filters.length > 0) {
    if (built && files.length === 0) throw new Error(`no test file matches "${filters.join('" or "')}"`);
  } else {
    const bin = (name: string): string => path.join(ROOT, 'node_modules/.bin', name);
    await Promise.all([
      check('lint', [bin('biome'), 'check', '.']),
      check('types', [bin('tsc'), '--noEmit']),
      check('types of the page', [bin('tsc'), '--noEmit', '--project', 'src/ui/page']),
    ]);
    await check('unit tests, with zod as in the executables', [...BUN, 'test/unit.ts', '--quick-zod']);
  }
  const queue: Turn[] = files.map(file => ({ file, front: true }));
  const again: Turn[] = [];
  const fronts = hasFronts(path.join(ROOT, 'dist/bin'));
  const planSecond = (file: string, seconds: number): void => {
    const second = turnWithoutFront(file, seconds, today);
    if (second === 'now') queue.push({ file, front: false });
    if (second === 'another day') postponed.push(file);
  };
  const jobs = Number(process.env.CATENA_TEST_JOBS) || Math.min(2, os.availableParallelism());
  await Promise.all(
    Array.from({ length: jobs }, async () => {
      for (let turn = queue.shift(); turn !== undefined; turn = queue.shift()) {
        const started = performance.now();
        if (!(await runFile(turn, inNamespaces, 'first'))) again.push(turn);
        if (fronts && turn.front) planSecond(turn.file, (performance.now() - started) / 1000);
      }
    }),
  );
  // Kernel tests share the machine with each other and with other work. A file that fails again when run alone has failed; one
  // that passes then is listed at the end as unsteady, to be made more robust.
  for (const turn of again) if (await runFile(turn, inNamespaces, 'alone')) unsteady.push(turn.file);
}

// Kernel tests need the right to create namespaces. Without root they run inside a user namespace, where /run is private.
async function namespacePrefix(): Promise<string[]> {
  if (process.getuid?.() === 0) return [];
  const prefix = [
    'unshare',
    '-Urnm',
    'sh',
    '-c',
    'mount -t tmpfs run /run && ip link set lo up && exec "$@"',
    'sh',
  ];
  const works = await run([...prefix, 'true']).catch(() => undefined);
  if (works?.exitCode === 0) {
    say('not root: kernel tests run in a user namespace');
    return prefix;
  }
  say('not root, and no user namespaces here: kernel tests are skipped; run as root to have them all');
  return [];
}

function needsExecutables(file: string): boolean {
  return /^test\/(netns|e2e|twin|soak|storm|fuzz|node)\//.test(file);
}

/** Every test file that the filters select, the slow kernel tests first so that no core idles at the end. */
function testFiles(): string[] {
  const order = ['twin', 'soak', 'storm', 'fuzz', 'e2e', 'netns', 'node', 'simulator', 'golden', 'unit'];
  const rank = (file: string): number => order.indexOf(file.split('/')[1] ?? '');
  return fs
    .readdirSync(path.join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter(file => /\.test\.(ts|mjs)$/.test(file) && !file.includes('node_modules'))
    .map(file => `test/${file}`)
    .filter(file => filters.length === 0 || filters.some(filter => file.includes(filter)))
    .sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

/** Runs one file and prints its outcome; only the last run of a file counts. */
async function runFile(
  { file, front }: Turn,
  prefix: readonly string[],
  turn: 'first' | 'alone',
): Promise<boolean> {
  const report = path.join(reports, `${file.replaceAll('/', '_')}${front ? '' : '-without-front'}.xml`);
  const argv = file.endsWith('.mjs')
    ? [
        ...['node', '--test', '--test-reporter=spec', '--test-reporter-destination=stdout'],
        ...['--test-reporter=junit', `--test-reporter-destination=${report}`, file],
      ]
    : [
        ...[...BUN, 'test', '--no-orphans', '--preload=./test/preload.ts', `--timeout=${TEST_DEADLINE_MS}`],
        ...['--reporter=junit', `--reporter-outfile=${report}`, `./${file}`],
      ];
  const started = performance.now();
  const env = front ? {} : { CATENA_TEST_FRONT: '0' };
  const finished = await attempt([...prefix, ...argv], FILE_DEADLINE_MS, env);
  const outcomes = fs.existsSync(report) ? parseJunit(fs.readFileSync(report, 'utf8')) : [];
  const counts = count(outcomes);
  // A crash, a broken import or a failing hook leaves no failed test behind, only an exit code.
  if (finished.exitCode !== 0 && counts.failed === 0) counts.failed++;
  const passed = counts.failed === 0;
  if (passed || turn === 'alone') addToTotal(file, counts, outcomes);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const line = `${file}${front ? '' : ' (without front)'}: ${summary(counts.passed, counts.failed, counts.skipped)} (${seconds} s)`;
  // A table is a result in itself, for example which executables conform to which rules of the protocol.
  const tables = finished.stdout.split('\n').filter(one => one.startsWith('|'));
  if (passed) say([`ok    ${line}`, ...tables.map(indent)].join('\n'));
  if (passed) return true;
  const output = `${finished.stdout}${finished.stderr}`.replace(/^\((pass|skip|todo)\).*\n/gm, '').trim();
  const verdict = turn === 'alone' ? 'FAIL ' : 'again';
  say(`${verdict} ${line}\n${indent(output)}\n      exit code ${finished.exitCode}`);
  return false;
}

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

function count(outcomes: TestOutcome[]): Counts {
  const of = (status: TestOutcome['status']): number =>
    outcomes.filter(test => test.status === status).length;
  return { passed: of('passed'), failed: of('failed'), skipped: of('skipped') };
}

function addToTotal(file: string, counts: Counts, outcomes: TestOutcome[]): void {
  for (const { title, status, reason = '' } of outcomes) {
    if (status !== 'skipped') continue;
    const titles = total.skipped.get(reason) ?? [];
    total.skipped.set(reason, [...titles, `${file}: ${title}`]);
  }
  total.passed += counts.passed;
  total.failed += counts.failed;
}

/** A step that is a single check: passes if the program does, and otherwise shows all its output. */
async function check(name: string, argv: string[]): Promise<boolean> {
  const { exitCode, stdout, stderr } = await attempt(argv, FILE_DEADLINE_MS);
  if (exitCode === 0) {
    total.passed++;
    say(`ok    ${name}`);
    return true;
  }
  total.failed++;
  say(`FAIL  ${name}\n${indent(`${stdout}${stderr}`.trim())}`);
  return false;
}

async function attempt(
  argv: readonly string[],
  timeoutMs: number,
  more: Readonly<Record<string, string>> = {},
): Promise<Finished> {
  try {
    return await run(argv, {
      cwd: ROOT,
      timeoutMs,
      env: { ...process.env, PATH: TEST_PATH, NO_COLOR: '1', ...more },
    });
  } catch (error) {
    return { exitCode: 124, stdout: '', stderr: String(error) };
  }
}

function finish(): never {
  const skipped = [...total.skipped.values()].flat().length;
  for (const [reason, titles] of total.skipped) {
    say(`skipped, ${reason}:\n${indent(titles.join('\n'))}`);
  }
  if (postponed.length > 0)
    say(`without fronts on another day, or by npm test -- ${BOTH}:\n${indent(postponed.join('\n'))}`);
  if (unsteady.length > 0) say(`passed only when run alone:\n${indent(unsteady.join('\n'))}`);
  say(summary(total.passed, total.failed, skipped));
  process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);
}

function summary(passed: number, failed: number, skipped: number): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

function indent(text: string): string {
  return text.replace(/^/gm, '      ');
}

function say(line: string): void {
  fs.writeSync(1, `${line}\n`);
}
