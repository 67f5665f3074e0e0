// Which observers are told of the chain that a command runs?
import type { Attachment, ChainRuntime, RequestFacts, RequestWatcher } from '../chain/run/runtime.ts';
import { runDir } from '../cni/directories.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { isObject } from '../cni/json.ts';
import { absolutePath } from '../files/read-file.ts';
import { appendHistory, eventOf, FAILED_WITHOUT_CODE, withHistory } from '../observe/history.ts';
import { podOf } from '../observe/record.ts';
import type { CommandCall } from './command.ts';
import { runtimeOf } from './target.ts';

/** The directory of traces: `--trace-dir`, else `CATENA_TRACE_DIR`, else in the run directory. */
export function traceDirFor(call: CommandCall): string {
  const named = call.text('trace-dir') || call.env.CATENA_TRACE_DIR;
  return named ? absolutePath(named, call.cwd) : `${call.text('run-dir') ?? runDir(call.env)}/traces`;
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
  const watcher = call.watcher ?? (await traceWatcher(call));
  const { containerId = '', ifname = '', netns = '', args = [] } = attachment ?? {};
  if (watcher === undefined) return noted(runtime, { verb, network, containerId, ifname, netns, args }, work);
  const warm = call.watcher !== undefined;
  const { queueMs } = call;
  const facts = { verb, network, containerId, ifname, netns, args, warm };
  const request = watcher.begin(queueMs === undefined ? facts : { ...facts, queueMs }, runtime.env ?? {});
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

/** Without a watcher, only the history is told. */
async function noted<T>(
  runtime: ChainRuntime,
  facts: Pick<RequestFacts, 'verb' | 'network' | 'containerId' | 'ifname' | 'netns' | 'args'>,
  work: (runtime: ChainRuntime) => Promise<T>,
): Promise<T> {
  const note = (end: { code: number; message?: string }): void => {
    const event = eventOf({ ...facts, ...podOf(facts.args ?? []), ...end }, { by: 'command' });
    if (event !== undefined && runtime.stateDir !== undefined) appendHistory(runtime.stateDir, [event]);
  };
  try {
    const result = await work(runtime);
    note({ code: 0 });
    return result;
  } catch (error) {
    const { code, message } = toCniError(error);
    // The protocol's code 0 is a failure of the runtime.
    note({ code: code || FAILED_WITHOUT_CODE, message });
    throw error;
  }
}

/** Without a daemon, a command keeps a trace only on request; only then is the code loaded. */
async function traceWatcher(call: CommandCall): Promise<RequestWatcher | undefined> {
  if (!call.on('trace') && !call.env.CATENA_TRACE_DIR) return undefined;
  const { openTraceWatcher } = await import('../observe/watcher.ts');
  const watcher = openTraceWatcher(traceDirFor(call), ({ message }) =>
    call.warn(new CniError(ErrorCode.ioFailure, `Cannot write a trace: ${message}`)),
  );
  const { stateDir } = runtimeOf(call);
  return stateDir === undefined ? watcher : withHistory(watcher, stateDir, 'command');
}
