// Who is told of the chain that a command runs?
import { resolve } from 'node:path';
import type { Attachment, Runtime } from '../chain/runtime.ts';
import { runDir } from '../cni/directories.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject } from '../cni/json.ts';
import type { RequestWatcher } from '../observe/watcher.ts';
import type { CommandCall } from './command.ts';
import { runtimeOf, warn } from './target.ts';

/** The directory of traces: `--trace-dir`, `CATENA_TRACE_DIR`, else below the run directory. */
export function traceDirFor(call: CommandCall): string {
  const named = call.text('trace-dir') || call.env.CATENA_TRACE_DIR;
  return named ? resolve(call.cwd, named) : `${call.text('run-dir') ?? runDir(call.env)}/traces`;
}

/**
 * Runs a chain with the directories and deadlines of the command line; the daemon, or the directory of traces where
 * somebody asked for one, gets to know of it and of each link.
 */
export async function watched<T>(
  call: CommandCall,
  verb: Command,
  attachment: Attachment | undefined,
  work: (runtime: Runtime) => Promise<T>,
): Promise<T> {
  const runtime = runtimeOf(call);
  const watcher = call.watcher ?? (await traceWatcher(call));
  if (watcher === undefined) return work(runtime);
  const { containerId = '', ifname = '', netns = '', args = [] } = attachment ?? {};
  const warm = call.watcher !== undefined;
  const { queueMs } = call;
  const [network = ''] = call.positionals;
  const facts = { verb, network, containerId, ifname, netns, args, warm };
  const request = watcher.begin(queueMs === undefined ? facts : { ...facts, queueMs }, runtime.env ?? {});
  try {
    const result = await work({
      ...runtime,
      ...request.watch,
      env: request.env,
      onLink(event) {
        request.watch.onLink?.(event);
        runtime.onLink?.(event);
      },
    });
    request.end({ result: isObject(result) ? result : undefined });
    return result;
  } catch (error) {
    request.end({ error });
    throw error;
  }
}

/** Commands without a daemon keep a trace when they are told to; only then is its code loaded. */
async function traceWatcher(call: CommandCall): Promise<RequestWatcher | undefined> {
  if (!call.on('trace') && !call.env.CATENA_TRACE_DIR) return undefined;
  const { openTraceWatcher } = await import('../observe/watcher.ts');
  return openTraceWatcher(traceDirFor(call), ({ message }) =>
    warn(call, new CniError(ErrorCode.ioFailure, `Cannot keep a trace: ${message}`)),
  );
}
