// Which network, container and directories does a command line mean, and who is told of the chain that it runs?

import { join } from 'node:path';
import { type Conflist, declaredCapabilities } from '../chain/config/conflist.ts';
import { parsePluginDirs } from '../chain/config/find-plugin.ts';
import { type Diagnostic, loadFile, loadNetwork, NetworkNotFound } from '../chain/config/load.ts';
import type { Attachment, ChainRuntime, Deadlines, RequestWatcher } from '../chain/run/runtime.ts';
import type { SegmentRunner } from '../chain/run/segment.ts';
import { DEFAULT_BIN_DIR, DEFAULT_CONF_DIR, stateDir } from '../cni/directories.ts';
import { type CniArgs, COMMANDS, type Command, parseCniArgs } from '../cni/env.ts';
import { CniError, ErrorCode, invalidConfig, invalidEnvironment } from '../cni/errors.ts';
import { defined, didYouMean, isObject, type JsonObject } from '../cni/json.ts';
import { absolutePath, namespacePath } from '../files/read-file.ts';
import { deriveContainerId } from '../node/names.ts';
import { historyAlone } from '../observe/history.ts';
import { workerSegments } from '../worker/client.ts';
import { ownWorker } from '../worker/process.ts';
import { capabilitiesOf } from './capability-options.ts';
import { type CommandCall, runDirOf, secondsIn, UsageError } from './command.ts';

/** The directory of the journal and the history. */
export function stateDirOf(call: CommandCall): string {
  return call.text('state-dir') || stateDir(call.env);
}

export function confDirOf(call: CommandCall): string {
  return call.text('conf-dir') || call.env.NETCONFPATH || DEFAULT_CONF_DIR;
}

/** The network, by default the one named first on the command line, from `--file` or the configuration directory. */
export function loadTarget(call: CommandCall, name = call.positionals[0] ?? ''): Conflist {
  const file = call.text('file');
  const tell = ({ error }: Diagnostic) => call.warn(error);
  if (file === undefined) return loadNetwork(confDirOf(call), name, tell);
  const list = loadFile(file, tell);
  if (list.name === name) return list;
  throw new NetworkNotFound(name, ` in "${file}": its name is "${list.name}"`);
}

export function pluginDirsOf(call: CommandCall): readonly string[] {
  const dirs = call.texts('bin-dir');
  return dirs.length ? dirs : parsePluginDirs(call.env.CNI_PATH || DEFAULT_BIN_DIR);
}

/** The directory of traces: `--trace-dir`, else `CATENA_TRACE_DIR`, else in the run directory. */
export function traceDirFor(call: CommandCall): string {
  const named = call.text('trace-dir') || call.env.CATENA_TRACE_DIR;
  return named ? absolutePath(named, call.cwd) : join(runDirOf(call), 'traces');
}

/** What runs one chain at a time, in a worker. */
export const segmentsOf = (call: CommandCall): SegmentRunner =>
  workerSegments(call.workers ?? ownWorker(), call.cwd);

/** Where plugins are and how they run; the standard error of a plugin that succeeds is passed on. */
export function runtimeOf(call: CommandCall): ChainRuntime {
  const cacheDir = call.text('cni-cache-dir');
  return {
    pluginDirs: pluginDirsOf(call),
    env: call.env,
    signal: call.signal,
    segments: segmentsOf(call),
    stateDir: stateDirOf(call),
    owner: 'catena',
    ...defined({ cacheDir, request: call.request, deadlineMs: deadlinesOf(call) }),
    openWitness: async () => (await import('../node/garbage/witness.ts')).nodeWitness(call.plugins.find),
    onPlugin({ stderr, error }) {
      if (error === undefined && stderr !== '') call.err(stderr.endsWith('\n') ? stderr : `${stderr}\n`);
    },
    onWarning: warning => call.warn(warning),
  };
}

/**
 * Runs a chain with the directories and deadlines of the command line. Reports it and each of its plugins to the daemon's
 * watcher, or to the directory of traces if a trace was requested.
 * @param network the first argument unless given
 */
export async function watched<T>(
  call: CommandCall,
  verb: Command | 'SET',
  attachment: Attachment | undefined,
  work: (runtime: ChainRuntime) => Promise<T>,
  network = call.positionals[0] ?? '',
): Promise<T> {
  const runtime = runtimeOf(call);
  const watcher = call.watcher ?? (await traceWatcher(call)) ?? historyAlone(stateDirOf(call));
  const { containerId = '', ifname = '', netns = '', args = [] } = attachment ?? {};
  const by = call.watcher === undefined ? ('command' as const) : ('daemon' as const);
  const facts = {
    verb,
    network,
    containerId,
    ifname,
    netns,
    args,
    by,
    ...defined({ queueMs: call.queueMs }),
  };
  const request = watcher.begin(facts, runtime.env ?? {});
  try {
    const result = await work({
      ...runtime,
      ...request.watch,
      env: request.env,
      onPlugin(event) {
        request.watch.onPlugin?.(event);
        runtime.onPlugin?.(event);
      },
    });
    request.end({ result: isObject(result) ? result : undefined });
    return result;
  } catch (error) {
    request.end({ error });
    throw error;
  }
}

/** Without a daemon, a command keeps a trace only on request; only then is the code loaded. */
async function traceWatcher(call: CommandCall): Promise<RequestWatcher | undefined> {
  if (!call.on('trace') && !call.env.CATENA_TRACE_DIR) return undefined;
  const { openTraceWatcher } = await import('../observe/watcher.ts');
  const onProblem = ({ message }: Error) =>
    call.warn(new CniError(ErrorCode.ioFailure, `Cannot write a trace: ${message}`));
  return openTraceWatcher(traceDirFor(call), onProblem, stateDirOf(call));
}

/** Deadline of each plugin: from the command line, else from the daemon's settings. */
export function deadlinesOf(call: CommandCall): Deadlines | undefined {
  return parseTimeouts(call.texts('timeout')) ?? call.deadlines;
}

/** The container's side: the second argument and the options, with environment variables as in cnitool. */
export function attachmentOf(call: CommandCall): Attachment {
  const netns = namespacePath(call.positionals[1] ?? '', call.cwd);
  const containerId = call.text('container-id') || (netns === '' ? '' : deriveContainerId(netns));
  if (containerId === '') {
    throw new UsageError('Cannot name the container: without a namespace, --container-id is required');
  }
  return {
    containerId,
    netns,
    ifname: call.text('ifname') || call.env.CNI_IFNAME || 'eth0',
    args: parseArgs(call.text('args') ?? call.env.CNI_ARGS ?? ''),
    capabilityArgs: capabilitiesOf(call, call.text('cap') || call.env.CAP_ARGS || ''),
  };
}

/** Arguments of a command line. @throws CniError 4 for a pair without key or value */
export function parseArgs(text: string): CniArgs {
  const args = parseCniArgs(text);
  const half = args.find(([key, value]) => key === '' || value === '');
  if (half === undefined) return args;
  throw invalidEnvironment(
    `Cannot read CNI_ARGS: invalid pair ${JSON.stringify(half.join('='))}, expected KEY=VALUE`,
  );
}

/** `30` applies to every verb, `del=120` to one; the last value of each counts. */
function parseTimeouts(texts: readonly string[]): Deadlines | undefined {
  if (!texts.length) return undefined;
  const deadlines: Partial<Record<string, number>> = {};
  const forAll = texts.findLast(text => !text.includes('='));
  if (forAll !== undefined)
    for (const verb of COMMANDS) deadlines[verb] = 1_000 * secondsIn(forAll, `--timeout "${forAll}"`);
  for (const text of texts.filter(one => one.includes('='))) {
    const verb = text.slice(0, text.indexOf('='));
    const command = COMMANDS.find(one => one === verb.toUpperCase());
    if (command === undefined)
      throw new UsageError(`Cannot use --timeout "${text}": "${verb}" is not one of ${COMMANDS.join(', ')}`);
    deadlines[command] = 1_000 * secondsIn(text.slice(verb.length + 1), `--timeout "${text}"`);
  }
  return deadlines;
}

/** A warning for each capability argument that no plugin declares: the chain runs as if the argument were missing. */
export function findUnread(list: Conflist, given: JsonObject): CniError[] {
  const declared = declaredCapabilities(list);
  const unread = Object.keys(given).filter(name => !declared.includes(name));
  return unread.map(name => {
    const near = didYouMean(name, declared);
    const text = `Cannot pass capability "${name}": no plugin of network "${list.name}" declares it${near}`;
    return invalidConfig(text);
  });
}
