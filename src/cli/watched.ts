// Which observers are told of the chain that a command runs?
import { join } from 'node:path';
import type { Attachment, ChainRuntime, RequestWatcher } from '../chain/run/runtime.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { defined, isObject } from '../cni/json.ts';
import { absolutePath } from '../files/read-file.ts';
import { appendHistory, eventOf, withHistory } from '../observe/history.ts';
import { FAILED_WITHOUT_CODE, podOf } from '../observe/record.ts';
import { type CommandCall, runDirOf } from './command.ts';
import { runtimeOf, stateDirOf } from './target.ts';

/** The directory of traces: `--trace-dir`, else `CATENA_TRACE_DIR`, else in the run directory. */
export function traceDirFor(call: CommandCall): string {
  const named = call.text('trace-dir') || call.env.CATENA_TRACE_DIR;
  return named ? absolutePath(named, call.cwd) : join(runDirOf(call), 'traces');
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
  const watcher = call.watcher ?? (await traceWatcher(call)) ?? noting(runtime);
  const { containerId = '', ifname = '', netns = '', args = [] } = attachment ?? {};
  const warm = call.watcher !== undefined;
  const facts = {
    verb,
    network,
    containerId,
    ifname,
    netns,
    args,
    warm,
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

/** Tells the history alone. */
function noting({ stateDir = '' }: ChainRuntime): RequestWatcher {
  return {
    begin: (facts, env) => ({
      env,
      id: '',
      watch: {},
      end({ error }) {
        const failure = error === undefined ? undefined : toCniError(error);
        // The protocol's code 0 is a failure of the runtime.
        const code = failure ? failure.code || FAILED_WITHOUT_CODE : 0;
        const end = { code, ...defined({ message: failure?.message }) };
        const event = eventOf({ ...facts, ...podOf(facts.args ?? []), ...end }, { by: 'command' });
        if (event !== undefined) appendHistory(stateDir, [event]);
      },
    }),
  };
}

/** Without a daemon, a command keeps a trace only on request; only then is the code loaded. */
async function traceWatcher(call: CommandCall): Promise<RequestWatcher | undefined> {
  if (!call.on('trace') && !call.env.CATENA_TRACE_DIR) return undefined;
  const { openTraceWatcher } = await import('../observe/watcher.ts');
  const watcher = openTraceWatcher(traceDirFor(call), ({ message }) =>
    call.warn(new CniError(ErrorCode.ioFailure, `Cannot write a trace: ${message}`)),
  );
  return withHistory(watcher, stateDirOf(call), 'command');
}
