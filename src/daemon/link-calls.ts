// How does the daemon serve one of our plugins that a third-party runtime calls directly?

import { finishDeferred } from '../chain/run/call-plugins.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import type { Segment, PluginCall as SegmentCall, SegmentRunner } from '../chain/run/segment.ts';
import { findTraceParent, startSpan, traceEnv } from '../chain/run/trace-context.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { Outcome } from '../cni/reply.ts';
import { howEnded, noteUnserved, ownSegments, type WorkerSource } from '../worker/client.ts';
import { errorOf, type MakeCall, networkIn, objectIn, type PluginCall } from './plugin-calls.ts';
import type { Declined, RunReply } from './protocol.ts';

/** A plugin call, as a process of its own would get it. */
export interface PluginRequest extends PluginCall {
  readonly link: string;
  /** Directory against which relative paths are resolved. */
  readonly cwd: string;
}

/** Deadline of one call. Runtimes give up long before that, which ends the call. */
const LINK_DEADLINE_MS = 10 * 60_000;

/**
 * Has workers serve plugin calls. Nothing is recorded or rolled back here: that is up to the process that runs the chain, as if
 * each plugin were a process of its own. If the caller disconnects during a call, the worker is ended, as the plugin's process
 * would be.
 */
export function pluginCallsTo(workers: WorkerSource): MakeCall<PluginRequest> {
  return async ({ link, env, stdin, cwd }, signal, watch) => {
    const { onPlugin, tracesKernel, envOf } = watch;
    const parent = findTraceParent(env);
    const span = parent && startSpan(parent);
    const { workers: watched, unserved } = noteUnserved(workers);
    const own = ownSegments(watched, cwd);
    const call = { path: link, env: { ...env, ...envOf?.(link), ...traceEnv(parent, span) }, request: stdin };
    const outcome = await runOne(own, call, { signal, tracesKernel });
    const about = { network: networkIn(stdin), verb: env.CNI_COMMAND as Command };
    const late = await finishDeferred(own, about.network, about.verb, watch);
    const reply = replyOf(link, outcome, late);
    const said = objectIn(reply.stdout);
    const { durationMs, transactions } = outcome;
    onPlugin?.({
      ...{ ...about, plugin: link, index: 0, executable: process.execPath, durationMs, stderr: reply.stderr },
      ...(reply.exitCode !== 0 ? { error: errorOf(said) } : said ? { result: said } : {}),
      ...(span ? { span } : {}),
      ...(transactions ? { transactions } : {}),
    });
    // No worker has begun the call, so its client makes it.
    return unserved.why === undefined ? reply : { ...reply, ...declinedFor(unserved.why) };
  };
}

/** Runs a segment of one call. */
async function runOne(
  own: SegmentRunner,
  call: SegmentCall,
  limits: Pick<Segment, 'signal' | 'tracesKernel'>,
): Promise<ExecOutcome> {
  const segment = { calls: [call], threadsResult: false, stopsAtFailure: true, ...limits };
  for await (const outcome of own.run({ ...segment, deadlineMs: LINK_DEADLINE_MS })) return outcome;
  throw new Error('a segment ended without an outcome');
}

/** The answer if no worker has read a call. */
export function declinedFor(why: string): Declined {
  return { declined: 'workers', error: why };
}

/** The plugin's reply, byte for byte, unless the plugin died or one of its deferred removals failed. */
function replyOf(link: string, outcome: ExecOutcome, late: Outcome | undefined): RunReply {
  const { exitCode, stdout, stderr } = outcome;
  if (exitCode === undefined || outcome.ended !== undefined || outcome.again) {
    const how = howEnded(outcome);
    const error = new CniError(
      ErrorCode.tryAgainLater,
      `Cannot finish call of plugin "${link}": its worker ended (${how}); delete the attachment and try again`,
    );
    return { exitCode: 1, stdout: JSON.stringify(error.toReply()), stderr };
  }
  if (exitCode === 0 && late && late.exitCode !== 0)
    return { exitCode: 1, stdout: late.stdout, stderr: `${stderr}${late.stderr}` };
  return { exitCode, stdout, stderr };
}
