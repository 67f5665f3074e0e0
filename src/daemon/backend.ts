// How does the daemon do what its clients ask it to?
import { isAbsolute, resolve } from 'node:path';
import { finishDeferred } from '../chain/run/call-plugins.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import type { RequestWatcher, Watch } from '../chain/run/runtime.ts';
import type { Segment, PluginCall as SegmentCall, SegmentRunner } from '../chain/run/segment.ts';
import { findTraceParent, startSpan, traceEnv } from '../chain/run/trace-context.ts';
import { type Enveloped, inEnvelope } from '../cli/answers/envelope.ts';
import { RUN_DIR_VARIABLE } from '../cni/directories.ts';
import { ASKED_VARIABLE, type Command, findCniArgs } from '../cni/env.ts';
import { type CniError, tryAgainLater } from '../cni/errors.ts';
import {
  errorIn,
  type Invocation,
  networkIn,
  type Outcome,
  objectIn,
  type Reply,
} from '../cni/invocation.ts';
import { defined, type JsonObject } from '../cni/json.ts';
import { NODE_VARIABLE } from '../cni/node-name.ts';
import { howEnded, noteUnserved, ownSegments } from '../worker/client.ts';
import type { WorkerSource } from '../worker/process.ts';
import type { WorkerPool } from './pool.ts';
import {
  type PluginRequest,
  type RunAnswer,
  type RunRequest,
  SERVED_VARIABLE,
  STATE_PATH,
} from './protocol.ts';
import type { Backend } from './server.ts';

/** Makes the call. @param workers serve it, such as those of a turn */
type CallWith<T> = (
  call: PluginRequest,
  signal: AbortSignal,
  more: T,
  workers: WorkerSource,
) => Promise<RunAnswer>;

/** Runs the delegate runner in this process, which reports the plugins that it has called. */
type RunDelegates = CallWith<Watch>;

/** Makes the call, which waited for so many milliseconds, and reports the outcome to the watcher. */
export type WatchedCall = CallWith<number>;

/** Runs a command line as a process of its own would. */
type RunCommand = (
  call: Pick<RunRequest, 'args' | 'env' | 'cwd' | 'key'> & {
    readonly queueMs: number;
    /** Serve the plugin calls of the command. */
    readonly workers: WorkerSource;
  },
  write: (fd: 1 | 2, text: string) => void,
  signal: AbortSignal,
) => Promise<number>;

/** What can be read over HTTP, apart from the daemon's own state. */
interface Readings {
  /** The metrics page for Prometheus. */
  metrics(): Promise<Response>;
  /** Recent requests, or the one whose id has this prefix; undefined if there is none. */
  traces(id: string | undefined): Enveloped<'Request'> | Enveloped<'RequestList'> | undefined;
}

/**
 * Runs commands and plugin calls, and reports the daemon's state over HTTP.
 * @param node the name of this node, for calls that bring none: a runtime's environment does not say
 * @param facts more members of that state
 */
export function makeBackend(
  pool: WorkerPool,
  runCommand: RunCommand,
  { call, node }: { readonly call: WatchedCall; readonly node?: string | undefined },
  readings: Readings,
  facts: () => object,
): Backend {
  return {
    pool,
    run(request, signal, queueMs, turn) {
      const env = { ...(node ? { [NODE_VARIABLE]: node } : {}), ...environmentFor(request, queueMs) };
      const { plugin, stdin, cwd, args } = request;
      if (args.length === 0) return call({ plugin, env, stdin, cwd }, signal, queueMs, turn);
      return withWorkers(turn, async workers => {
        const written = { 1: '', 2: '' };
        const write = (fd: 1 | 2, text: string): void => {
          written[fd] += text;
        };
        const exitCode = await runCommand({ ...request, env, queueMs, workers }, write, signal);
        return { exitCode, stdout: written[1], stderr: written[2] };
      });
    },
    async answer(request) {
      const { pathname } = new URL(request.url);
      if (pathname === '/healthz') return new Response('ok\n');
      if (pathname === '/readyz') {
        const ready = await pool.ready();
        return new Response(ready ? 'ok\n' : 'no worker responds\n', { status: ready ? 200 : 503 });
      }
      if (pathname === STATE_PATH) {
        const { workers, busy, ...requests } = pool.state;
        const state = { pid: process.pid, ...requests, pool: { workers, busy }, ...facts() };
        return Response.json(inEnvelope('DaemonState', state));
      }
      if (pathname === '/metrics') return readings.metrics();
      const [, isTraces, id] = /^(\/v1\/traces)(?:\/([\da-z]+))?$/.exec(pathname) ?? [];
      const traces = isTraces && readings.traces(id);
      return traces ? Response.json(traces) : undefined;
    },
  };
}

/**
 * Does work whose plugins are served by workers. If it fails and one of its calls found no worker, the client repeats all of it,
 * as after the death of a daemon.
 */
export async function withWorkers(
  pool: WorkerSource,
  work: (workers: WorkerSource) => Promise<Reply>,
): Promise<RunAnswer> {
  const { workers, unserved } = noteUnserved(pool);
  const reply = await work(workers);
  if (unserved.why === undefined || reply.exitCode === 0) return reply;
  return { ...reply, declined: 'workers', error: unserved.why, begun: true };
}

/** Has workers serve the calls of plugins, and reports every call and its plugins to a watcher. */
export function watchedCalls(watcher: RequestWatcher, runDelegates: RunDelegates): WatchedCall {
  return async (call, signal, queueMs, workers) => {
    const { env, stdin, plugin } = call;
    const network = networkIn(stdin);
    const { CNI_COMMAND = '', CNI_CONTAINERID = '', CNI_IFNAME = '', CNI_NETNS = '' } = env;
    const request = watcher.begin(
      {
        verb: CNI_COMMAND,
        network,
        containerId: CNI_CONTAINERID,
        ifname: CNI_IFNAME,
        netns: CNI_NETNS,
        args: findCniArgs(env.CNI_ARGS ?? ''),
        by: 'runtime',
        queueMs,
      },
      env,
    );
    const own = { ...call, env: request.env };
    const reply =
      plugin === undefined
        ? await runDelegates(own, signal, request.watch, workers)
        : await callByWorker({ ...own, plugin, network }, signal, request.watch, workers);
    request.end(outcomeOf(reply));
    return reply;
  };
}

/** Deadline of one call. Runtimes give up long before that, which ends the call. */
const CALL_DEADLINE_MS = 10 * 60_000;

/**
 * Has workers serve plugin calls. Nothing is recorded or rolled back here: that is up to the process that runs the chain, as if
 * each plugin were a process of its own. If the caller disconnects during a call, the worker is ended, as the plugin's process
 * would be.
 */
async function callByWorker(
  { plugin, network, ...invocation }: Invocation & { readonly plugin: string; readonly network: string },
  signal: AbortSignal,
  watch: Watch,
  workers: WorkerSource,
): Promise<RunAnswer> {
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
  const verb = env.CNI_COMMAND as Command;
  const late = await finishDeferred(own, network, verb, watch);
  const reply = replyOf(plugin, outcome, late);
  const { durationMs, transactions } = outcome;
  onPlugin?.({
    network,
    verb,
    plugin,
    index: 0,
    executable: process.execPath,
    durationMs,
    stderr: reply.stderr,
    ...outcomeOf(reply),
    ...defined({ span, transactions }),
  });
  // No worker has begun the call, so its client makes it.
  return unserved.why === undefined ? reply : { ...reply, declined: 'workers', error: unserved.why };
}

async function runOne(
  own: SegmentRunner,
  call: SegmentCall,
  limits: Pick<Segment, 'signal' | 'tracesKernel'>,
): Promise<ExecOutcome> {
  const segment = { calls: [call], threadsResult: false, stopsAtFailure: true, ...limits };
  for await (const outcome of own.run({ ...segment, deadlineMs: CALL_DEADLINE_MS })) return outcome;
  throw new Error('a segment ended without an outcome');
}

function outcomeOf(reply: Reply): { readonly error?: CniError; readonly result?: JsonObject } {
  return reply.exitCode === 0 ? defined({ result: objectIn(reply.stdout) }) : { error: errorIn(reply) };
}

/** The plugin's reply, byte for byte, unless the plugin died or one of its deferred removals failed. */
function replyOf(plugin: string, outcome: ExecOutcome, late: Outcome | undefined): Reply {
  const { exitCode, stdout, stderr } = outcome;
  if (exitCode === undefined || outcome.ended !== undefined || outcome.again) {
    const how = howEnded(outcome);
    const error = tryAgainLater(
      `Cannot finish call of plugin "${plugin}": its worker ended (${how}); delete the attachment and try again`,
    );
    return { exitCode: 1, stdout: JSON.stringify(error.toReply()), stderr };
  }
  if (exitCode === 0 && late && late.exitCode !== 0)
    return { exitCode: 1, stdout: late.stdout, stderr: `${stderr}${late.stderr}` };
  return { exitCode, stdout, stderr };
}

/** Environment for the call and its children: relative directories are resolved against the client's working directory. */
function environmentFor({ args, env, cwd }: RunRequest, queueMs: number): RunRequest['env'] {
  const isGc = env.CNI_COMMAND === 'GC' || args[0] === 'gc';
  return {
    ...env,
    // A worker must not wait for a call that itself needs a worker (deadlock).
    [SERVED_VARIABLE]: '1',
    ...(isGc ? { [ASKED_VARIABLE]: String(Date.now() - queueMs) } : {}),
    ...directoriesFrom(cwd, env),
  };
}

/** Variables that name one directory. */
const DIRECTORIES = [
  'NETCONFPATH',
  'CATENA_STATE_DIR',
  'CATENA_CNI_CACHE_DIR',
  'CATENA_TRACE_DIR',
  RUN_DIR_VARIABLE,
];

/** The relative directories of an environment that was given in this working directory, as they are called from elsewhere. */
export function directoriesFrom(
  cwd: string,
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const { CNI_PATH } = env;
  const relative = DIRECTORIES.flatMap(name => {
    const { [name]: dir = '' } = env;
    return dir === '' || isAbsolute(dir) ? [] : [[name, resolve(cwd, dir)] as const];
  });
  const dirs = CNI_PATH?.split(':').map(dir => resolve(cwd, dir));
  return { ...Object.fromEntries(relative), ...(CNI_PATH && dirs ? { CNI_PATH: dirs.join(':') } : {}) };
}
