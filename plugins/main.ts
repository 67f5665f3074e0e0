#!/usr/bin/env bun
// Which of our executables was called? One binary, many names.
//
// Static imports here are part of every start, even of one that only answers the front. So nothing of Node's and nothing large is
// imported. Everything else is loaded once it is known to be needed.
import type { AsPlugin, ReadMultus } from '../src/cli/command.ts';
import { CORE_NAME, DEFAULT_BIN_DIR, ON_DEMAND_SUFFIX, runDir } from '../src/cni/directories.ts';
import type { PluginCatalog } from '../src/cni/plugin-about.ts';
import {
  DAEMON_COMMANDS,
  JUDGE_FLAG,
  JUDGED,
  START_AGAIN_MS,
  socketPathOf,
  startNoteOf,
  UNANSWERED_VARIABLE,
} from '../src/daemon/protocol.ts';
import type { PluginDefinition } from '../src/plugin/define.ts';
import type { WorkerSource } from '../src/worker/process.ts';
import { WORKER_FLAG } from '../src/worker/protocol.ts';
import {
  AS_FLAG,
  isPluginName,
  isRunner,
  KNOWN_TYPES,
  type KnownType,
  loadAbout,
  loadPlugin,
  PLUGINS,
  type PluginName,
  RUNNER,
  RUNNER_ALIASES,
  RUNNER_NAME,
} from './registry.ts';

const CATALOG: PluginCatalog = {
  types: KNOWN_TYPES,
  aliases: RUNNER_ALIASES,
  find: loadAbout,
  schemas: async () => (await import('./build/published-schemas.ts')).SCHEMAS,
  answerSchemas: async () => (await import('./build/published-schemas.ts')).ANSWER_SCHEMAS,
};

/**
 * What became of the front's request to the daemon, if the Bun program was executed after all. Read once, and removed: children of this
 * process make calls of their own.
 */
const { [UNANSWERED_VARIABLE]: told = '' } = process.env;
delete process.env[UNANSWERED_VARIABLE];
const [, verdict, key, callsFile = ''] = /^(\w+) (\S*) ?(.*)$/s.exec(told) ?? [];

const { name, args } = calledAs(process.argv0, process.argv.slice(2));
if (args[0] === WORKER_FLAG) await runAsWorker();
else if (args[0] === JUDGE_FLAG) await judgeForFront(args.slice(1));
else if (isPluginName(name)) await runAsPlugin(name);
// The tool is also a plugin when a runtime calls it; under multus's names it is nothing else.
else if ((isRunner(name) && name !== RUNNER_NAME) || (args.length === 0 && process.env.CNI_COMMAND))
  await runAsRunner();
else await runAsTool(args);

/** By the name of the executable, or by {@link AS_FLAG}. */
function calledAs(argv0: string, argv: string[]): { name: string; args: string[] } {
  const [flag, as, ...rest] = argv;
  return flag === AS_FLAG && as !== undefined
    ? { name: as, args: rest }
    : { name: argv0.slice(argv0.lastIndexOf('/') + 1), args: argv };
}

async function runAsWorker(): Promise<never> {
  const { runWorker } = await import('../src/worker/worker.ts');
  return runWorker(type => loadPlugin(type) ?? (isRunner(type) ? RUNNER.load() : undefined));
}

async function runAsPlugin(plugin: PluginName): Promise<never> {
  const again = await mayHaveBegun();
  return await serveOnce(await PLUGINS[plugin].load(), plugin, again);
}

async function runAsRunner(): Promise<never> {
  // If the reply to a request was lost, its record tells the outcome.
  await mayHaveBegun();
  return await serveOnce(await RUNNER.load(), RUNNER_NAME);
}

/** What no daemon notes, the process of the plugin does. */
async function serveOnce(plugin: PluginDefinition, type: KnownType, again = false): Promise<never> {
  const [{ runPlugin }, { noteCall }] = await Promise.all([
    import('../src/plugin/run.ts'),
    import('../src/observe/history.ts'),
  ]);
  const onReply = (request: string, reply: string) => noteCall(name, process.env, request, reply);
  return runPlugin(plugin, loadPlugin, { again, release: () => releaseOf(type), onReply });
}

async function runAsTool(args: readonly string[]): Promise<never> {
  await mayHaveBegun();
  const workers = DAEMON_COMMANDS.includes(args[0] ?? '') ? await startEarly(args) : undefined;
  const { runMain } = await import('../src/cli/main.ts');
  // Identifies the request to the daemon and, if its reply is lost, to the record.
  const more = { multus: readMultus, request: key || crypto.randomUUID(), ...(workers ? { workers } : {}) };
  const surroundings = { plugins: CATALOG, asPlugin, ...more };
  process.exit(await runMain(args, surroundings));
}

/** Requested only by hand, or by a program that inspects the installed plugins. */
async function releaseOf(name: KnownType): Promise<string> {
  return (await import('./release.ts')).releaseOf(name);
}

async function startEarly(args: readonly string[]): Promise<WorkerSource | undefined> {
  const dirs = args.flatMap((arg, i) => {
    if (arg === '--bin-dir') return args[i + 1] ?? [];
    return arg.startsWith('--bin-dir=') ? arg.slice('--bin-dir='.length) : [];
  });
  const { earlyWorker } = await import('../src/worker/process.ts');
  return earlyWorker(dirs.length ? dirs.join(':') : process.env.CNI_PATH || DEFAULT_BIN_DIR, RUNNER_NAME);
}

async function readMultus(): ReturnType<ReadMultus> {
  const [{ CatenaConf, fromMultus, optionsOf }, { decode }] = await Promise.all([
    import('./catena/config.ts'),
    import('../src/cni/json.ts'),
  ]);
  return {
    translate: fromMultus,
    optionsOf: (entry, network, version) =>
      optionsOf(decode(CatenaConf, entry, 'entry of catena'), network, version),
  };
}

/** The delegate runner inside the daemon. */
async function asPlugin(...[{ env, stdin }, surroundings]: Parameters<AsPlugin>): ReturnType<AsPlugin> {
  const { replyTo } = await import('../src/plugin/serve.ts');
  const runner = await RUNNER.load(surroundings);
  return replyTo(runner, { env, readStdin: () => stdin }, loadPlugin);
}

// Only the front asks a daemon. Without one, as built without a C compiler, there was no request.

/**
 * Whether the daemon may have begun the call of this process, which it never continues. Where no daemon listens, this starts one if it is
 * to be started by calls.
 */
async function mayHaveBegun(): Promise<boolean> {
  if (verdict === 'absent') await startIfWanted();
  if (verdict !== 'broken' || !key) return verdict === 'lost';
  const { judgeBreak } = await import('../src/daemon/calls.ts');
  return judgeBreak(callsFile, key) !== 'declined';
}

/**
 * Answers the front's question what the silence of a daemon means, by the exit status of this process.
 * @param args the calls file, the key of the call, and the milliseconds of silence
 */
async function judgeForFront([file = '', key = '', silentMs = '']: readonly string[]): Promise<never> {
  const { judgeSilence } = await import('../src/daemon/calls.ts');
  process.exit(JUDGED[await judgeSilence(file, key, Number(silentMs))]);
}

/** The call does not wait for the daemon that this starts. Few hosts have the file, and then the note is mostly recent. */
async function startIfWanted(): Promise<void> {
  const directory = process.execPath.slice(0, process.execPath.lastIndexOf('/') + 1);
  const file = `${directory}${CORE_NAME}${ON_DEMAND_SUFFIX}`;
  const exists = Bun.file(file).lastModified <= Date.now();
  const started = Bun.file(startNoteOf(socketPathOf(runDir()))).lastModified;
  // Bun reports the present or a later time for a missing file.
  if (!exists || (started < Date.now() && Date.now() - started < START_AGAIN_MS)) return;
  const { startOnDemand } = await import('../src/daemon/on-demand.ts');
  startOnDemand(file, runDir());
}
