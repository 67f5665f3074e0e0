#!/usr/bin/env bun
// Which of our executables was called? One binary, many names.
//
// Static imports here are part of every start, even of one that only forwards its call to a daemon. So nothing of Node's and
// nothing large is imported. Everything else is loaded once it is known to be needed.
import type { AsPlugin } from '../src/cli/command.ts';
import { DEFAULT_BIN_DIR, runDir } from '../src/cni/directories.ts';
import type { PluginAbout, PluginCatalog } from '../src/cni/plugin-about.ts';
import { askDaemon, findDoor, mayListen } from '../src/daemon/client.ts';
import { DAEMON_COMMANDS, DAEMON_VERBS, SERVED_VARIABLE } from '../src/daemon/protocol.ts';
import type { PluginDefinition } from '../src/plugin/define.ts';
import { readInput, textOf, writeOut } from '../src/plugin/early-stdio.ts';
import { FAULT_VARIABLE } from '../src/sys/fault-variable.ts';
import type { WorkerSource } from '../src/worker/client.ts';
import { WORKER_FLAG } from '../src/worker/protocol.ts';
import type { RunnerSurroundings } from './catena/runner.ts';
import { PLUGIN_NAMES, type PluginName, RUNNER_NAME } from './names.ts';

/** Every plugin, loaded when its name is called; the only list of plugins besides names.ts. */
const PLUGINS: Readonly<Record<PluginName, () => Promise<PluginDefinition>>> = {
  bandwidth: async () => (await import('./bandwidth/plugin.ts')).bandwidth,
  bridge: async () => (await import('./bridge/plugin.ts')).bridge,
  firewall: async () => (await import('./firewall/plugin.ts')).firewall,
  flannel: async () => (await import('./flannel/plugin.ts')).flannel,
  'host-local': async () => (await import('./host-local/plugin.ts')).hostLocal,
  loopback: async () => (await import('./loopback/plugin.ts')).loopback,
  portmap: async () => (await import('./portmap/plugin.ts')).portmap,
  ptp: async () => (await import('./ptp/plugin.ts')).ptp,
  sbr: async () => (await import('./sbr/plugin.ts')).sbr,
  static: async () => (await import('./static/plugin.ts')).staticIpam,
  tuning: async () => (await import('./tuning/plugin.ts')).tuning,
};

/** What the tool knows about each plugin; a call of a plugin never loads this. */
const ABOUT: Readonly<Record<PluginName | typeof RUNNER_NAME, () => Promise<PluginAbout>>> = {
  bandwidth: async () => (await import('./bandwidth/about.ts')).about,
  bridge: async () => (await import('./bridge/about.ts')).about,
  catena: async () => (await import('./catena/about.ts')).about,
  firewall: async () => (await import('./firewall/about.ts')).about,
  flannel: async () => (await import('./flannel/about.ts')).about,
  'host-local': async () => (await import('./host-local/about.ts')).about,
  loopback: async () => (await import('./loopback/about.ts')).about,
  portmap: async () => (await import('./portmap/about.ts')).about,
  ptp: async () => (await import('./ptp/about.ts')).about,
  sbr: async () => (await import('./sbr/about.ts')).about,
  static: async () => (await import('./static/about.ts')).about,
  tuning: async () => (await import('./tuning/about.ts')).about,
};

const LINKS: PluginCatalog = {
  types: [...PLUGIN_NAMES, RUNNER_NAME].sort(),
  find: type => (Object.hasOwn(ABOUT, type) ? ABOUT[type as PluginName]() : undefined),
  schemas: async () => (await import('./published-schemas.ts')).SCHEMAS,
};

const { name, args } = calledAs(process.argv0, process.argv.slice(2));
if (args[0] === WORKER_FLAG) {
  const { runWorker } = await import('../src/worker/worker.ts');
  await runWorker(type => findPlugin(type) ?? (type === RUNNER_NAME ? loadRunner() : undefined));
}
let key: string | undefined;
if (Object.hasOwn(PLUGINS, name)) await runAsPlugin(name as PluginName);
// The tool is also a plugin when a runtime calls it; under multus's name it is nothing else.
const isRunner = name === 'multus' || (args.length === 0 && Boolean(process.env.CNI_COMMAND));
if (isRunner) await runAsRunner();
const runsChain = DAEMON_COMMANDS.includes(args[0] ?? '');
if (runsChain && mayHaveDaemon()) await tryDaemon(async () => ({ args }));
const workers = runsChain ? await startEarly() : undefined;
const { runMain } = await import('../src/cli/main.ts');
process.exit(
  await runMain(args, { plugins: LINKS, asPlugin, request: requestKey(), ...(workers ? { workers } : {}) }),
);

/** `bun plugins/main.ts --as bridge` calls a plugin without compiling. */
function calledAs(argv0: string, argv: string[]): { name: string; args: string[] } {
  const [flag, as, ...rest] = argv;
  return flag === '--as' && as !== undefined
    ? { name: as, args: rest }
    : { name: argv0.slice(argv0.lastIndexOf('/') + 1), args: argv };
}

async function loadRunner(surroundings?: RunnerSurroundings): Promise<PluginDefinition> {
  const { runnerIn } = await import('./catena/plugin.ts');
  return runnerIn(surroundings);
}

/** Requested only by hand, or by a program that inspects the installed plugins. */
async function releaseOf(name: PluginName | typeof RUNNER_NAME): Promise<string> {
  return (await import('./release.ts')).releaseOf(name);
}

function findPlugin(type: string): Promise<PluginDefinition> | undefined {
  return Object.hasOwn(PLUGINS, type) ? PLUGINS[type as PluginName]() : undefined;
}

async function runAsPlugin(link: PluginName): Promise<never> {
  const { CNI_COMMAND = '' } = process.env;
  const again = DAEMON_VERBS.includes(CNI_COMMAND) && (await tryDaemonAsPlugin(link));
  const { runPlugin } = await import('../src/plugin/run.ts');
  return runPlugin(await PLUGINS[link](), findPlugin, { again, release: () => releaseOf(link) });
}

async function runAsRunner(): Promise<never> {
  const { CNI_COMMAND } = process.env;
  // VERSION must not wait for standard input. If the reply to a request was lost, its record tells the outcome.
  if (CNI_COMMAND && CNI_COMMAND !== 'VERSION') await tryDaemonAsPlugin();
  const { runPlugin } = await import('../src/plugin/run.ts');
  return runPlugin(await loadRunner(), findPlugin, { release: () => releaseOf(RUNNER_NAME) });
}

/** Has the daemon make this plugin call. @returns whether it may have run the call without replying */
async function tryDaemonAsPlugin(link?: PluginName): Promise<boolean> {
  if (!mayHaveDaemon() || isOfThisProcess(process.env.CNI_NETNS)) return false;
  const input = readInput();
  const begun = await tryDaemon(async () => {
    const bytes = await input;
    const stdin = bytes && textOf(bytes);
    return stdin === undefined ? undefined : { args: [], stdin, ...(link ? { link } : {}) };
  });
  const bytes = await input;
  // Invalid or unreadable input is reported where the call is made.
  if (bytes !== undefined) (await import('../src/plugin/stdio.ts')).keepStdin(bytes);
  return begun;
}

/** A path that resolves differently for every process. */
function isOfThisProcess(path = ''): boolean {
  return path.startsWith('/proc/self/') || path.startsWith('/proc/thread-self/');
}

async function startEarly(): Promise<WorkerSource | undefined> {
  const early = await import('../src/worker/early.ts');
  const dirs = early.binDirsOf(args, process.env.CNI_PATH || DEFAULT_BIN_DIR);
  const worker = dirs === undefined ? undefined : early.startEarly(dirs, RUNNER_NAME);
  if (worker === undefined) return undefined;
  const { ownWorker } = await import('../src/worker/client.ts');
  return ownWorker(worker);
}

function mayHaveDaemon(): boolean {
  const { [SERVED_VARIABLE]: served, [FAULT_VARIABLE]: fault } = process.env;
  return !served && !fault && mayListen(runDir());
}

/** Identifies this request to the daemon and, if its reply is lost, to the record. */
function requestKey(): string {
  key ??= crypto.randomUUID();
  return key;
}

/**
 * Ends this process with the daemon's outcome of the call.
 * @returns if there is no outcome: whether the daemon may nevertheless have begun the call
 */
async function tryDaemon(
  prepare: () => Promise<{ args: string[]; stdin?: string; link?: string } | undefined>,
): Promise<boolean> {
  const [door, call] = await Promise.all([findDoor(runDir()), prepare()]);
  if (door === undefined || call === undefined) return false;
  const answer = await askDaemon(door, { ...call, key: requestKey(), env: process.env });
  if (answer === 'declined' || answer === 'lost') return answer === 'lost';
  if (answer.stdout) await writeOut(Bun.stdout, answer.stdout);
  if (answer.stderr) await writeOut(Bun.stderr, answer.stderr);
  process.exit(answer.exitCode);
}

/** The delegate runner inside the daemon. */
async function asPlugin(...[{ env, stdin }, surroundings]: Parameters<AsPlugin>): ReturnType<AsPlugin> {
  const { serve } = await import('../src/plugin/serve.ts');
  const { exitCode, stdout, log } = await serve(
    await loadRunner(surroundings),
    { env, readRequest: () => stdin },
    findPlugin,
  );
  let stderr = '';
  await log.flush(text => {
    stderr += text;
  });
  return { exitCode, stdout, stderr };
}
