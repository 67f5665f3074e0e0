// How does the daemon serve calls of this executable as a plugin, from its own client or over gRPC?
import { finishDeferred } from '../chain/run/call-plugins.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import type { Segment, PluginCall as SegmentCall, SegmentRunner } from '../chain/run/segment.ts';
import { findTraceParent, startSpan, traceEnv } from '../chain/run/trace-context.ts';
import { findCniArgs } from '../cni/cni-args.ts';
import { defined } from '../cni/defined.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { Invocation } from '../cni/invocation.ts';
import { isObject, type JsonObject, memberOf, tryParse } from '../cni/json.ts';
import type { Outcome } from '../cni/reply.ts';
import type { RequestWatcher, Watch } from '../observe/watcher.ts';
import { howEnded, noteUnserved, ownSegments, type WorkerSource } from '../worker/client.ts';
import type { Declined, RunAnswer, RunReply } from './protocol.ts';

/** Makes the call and reports the plugins that it ran. */
export type MakeCall<C extends Invocation = Invocation> = (
  call: C,
  signal: AbortSignal,
  watch: Watch,
) => Promise<RunAnswer>;

/** Makes the call and reports the outcome to the watcher. */
export type WatchedCall<C extends Invocation = Invocation> = (
  call: C,
  signal: AbortSignal,
  queueMs: number,
) => Promise<RunAnswer>;

/** Reports every call and its plugins to a watcher. */
export function watchedCalls<C extends Invocation>(
  watcher: RequestWatcher,
  make: MakeCall<C>,
): WatchedCall<C> {
  return async (call, signal, queueMs) => {
    const { env, stdin } = call;
    const { CNI_COMMAND = '', CNI_CONTAINERID = '', CNI_IFNAME = '', CNI_NETNS = '' } = env;
    const request = watcher.begin(
      {
        verb: CNI_COMMAND,
        network: networkIn(stdin),
        containerId: CNI_CONTAINERID,
        ifname: CNI_IFNAME,
        netns: CNI_NETNS,
        args: findCniArgs(env.CNI_ARGS ?? ''),
        warm: true,
        queueMs,
      },
      env,
    );
    const reply = await make({ ...call, env: request.env }, signal, request.watch);
    const said = objectIn(reply.stdout);
    request.end(reply.exitCode === 0 ? { result: said } : { error: errorOf(said) });
    return reply;
  };
}

/** A call of one of our plugins, by its name. */
export interface PluginRequest extends Invocation {
  readonly plugin: string;
}

/** Deadline of one call. Runtimes give up long before that, which ends the call. */
const CALL_DEADLINE_MS = 10 * 60_000;

/**
 * Has workers serve plugin calls. Nothing is recorded or rolled back here: that is up to the process that runs the chain, as if
 * each plugin were a process of its own. If the caller disconnects during a call, the worker is ended, as the plugin's process
 * would be.
 */
export function pluginCallsTo(workers: WorkerSource): MakeCall<PluginRequest> {
  return async ({ plugin, ...invocation }, signal, watch) => {
    const { env } = invocation;
    const { onPlugin, tracesKernel, envOf } = watch;
    const parent = findTraceParent(env);
    const span = parent && startSpan(parent);
    const { workers: watched, unserved } = noteUnserved(workers);
    const own = ownSegments(watched);
    const call = {
      ...invocation,
      path: plugin,
      env: { ...env, ...envOf?.(plugin), ...traceEnv(parent, span) },
    };
    const outcome = await runOne(own, call, { signal, tracesKernel });
    const about = { network: networkIn(invocation.stdin), verb: env.CNI_COMMAND as Command };
    const late = await finishDeferred(own, about.network, about.verb, watch);
    const reply = replyOf(plugin, outcome, late);
    const said = objectIn(reply.stdout);
    const { durationMs, transactions } = outcome;
    onPlugin?.({
      ...about,
      plugin,
      index: 0,
      executable: process.execPath,
      durationMs,
      stderr: reply.stderr,
      ...(reply.exitCode !== 0 ? { error: errorOf(said) } : said ? { result: said } : {}),
      ...defined({ span, transactions }),
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
  for await (const outcome of own.run({ ...segment, deadlineMs: CALL_DEADLINE_MS })) return outcome;
  throw new Error('a segment ended without an outcome');
}

/** The answer if no worker has read a call. */
export function declinedFor(why: string): Declined {
  return { declined: 'workers', error: why };
}

/** The plugin's reply, byte for byte, unless the plugin died or one of its deferred removals failed. */
function replyOf(plugin: string, outcome: ExecOutcome, late: Outcome | undefined): RunReply {
  const { exitCode, stdout, stderr } = outcome;
  if (exitCode === undefined || outcome.ended !== undefined || outcome.again) {
    const how = howEnded(outcome);
    const error = new CniError(
      ErrorCode.tryAgainLater,
      `Cannot finish call of plugin "${plugin}": its worker ended (${how}); delete the attachment and try again`,
    );
    return { exitCode: 1, stdout: JSON.stringify(error.toReply()), stderr };
  }
  if (exitCode === 0 && late && late.exitCode !== 0)
    return { exitCode: 1, stdout: late.stdout, stderr: `${stderr}${late.stderr}` };
  return { exitCode, stdout, stderr };
}

/** Name of the network in a request; empty if there is none. */
export function networkIn(stdin: string): string {
  const name = memberOf(objectIn(stdin) ?? {}, 'name');
  return typeof name === 'string' ? name : '';
}

/** The JSON object in a text; undefined if the text is anything else. */
export function objectIn(text: string): JsonObject | undefined {
  const value = tryParse(text);
  return isObject(value) ? value : undefined;
}

/** The error that a failed call has printed. */
export function errorOf(said: JsonObject | undefined): CniError {
  const { code, msg, details } = said ?? {};
  return new CniError(
    typeof code === 'number' ? code : ErrorCode.internal,
    typeof msg === 'string' ? msg : 'Cannot report the failure: the call returned no error',
    typeof details === 'string' ? { details } : {},
  );
}
