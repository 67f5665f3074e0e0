// How does the daemon run clients' requests?
import { resolve } from 'node:path';
import { type Enveloped, inEnvelope } from '../answers/envelope.ts';
import { ASKED_VARIABLE } from '../cni/env.ts';
import { NODE_VARIABLE } from '../cni/node-name.ts';
import { noteUnserved, type WorkerSource } from '../worker/client.ts';
import type { WatchedCall } from './plugin-calls.ts';
import { declinedFor, type PluginRequest } from './plugin-calls.ts';
import type { WorkerPool } from './pool.ts';
import { type RunAnswer, type RunReply, type RunRequest, SERVED_VARIABLE, STATE_PATH } from './protocol.ts';
import type { Backend } from './server.ts';

/** Runs a command line as a process of its own would, and collects its output. */
export type RunCommand = (
  call: Pick<RunRequest, 'args' | 'env' | 'cwd' | 'key'> & {
    readonly queueMs: number;
    /** Serve the plugin calls of the command. */
    readonly workers: WorkerSource;
  },
  write: (fd: 1 | 2, text: string) => void,
  signal: AbortSignal,
) => Promise<number>;

/** What can be read over HTTP, apart from the daemon's own state. */
export interface Readings {
  /** The metrics page for Prometheus. */
  metrics(): Promise<Response>;
  /** Recent requests, or the one whose id has this prefix; undefined if there is none. */
  traces(id: string | undefined): Enveloped<'Request'> | Enveloped<'RequestList'> | undefined;
}

/**
 * Runs commands and plugin calls, and reports the daemon's state over HTTP.
 * @param facts more members of that state
 */
export function makeBackend(
  pool: WorkerPool,
  runCommand: RunCommand,
  {
    runAsPlugin,
    callPlugin,
    node,
  }: {
    readonly runAsPlugin: WatchedCall;
    readonly callPlugin: WatchedCall<PluginRequest>;
    /** The name of this node, for calls that bring none: a runtime's environment does not say. */
    readonly node?: string | undefined;
  },
  readings: Readings,
  facts: () => object,
): Backend {
  const active = new Map<string, Promise<RunAnswer>>();
  const begin = (request: RunRequest, signal: AbortSignal, queueMs: number): Promise<RunAnswer> => {
    const { stdin, link: plugin, cwd } = request;
    const env = { ...(node ? { [NODE_VARIABLE]: node } : {}), ...environmentFor(request, queueMs) };
    if (stdin !== undefined && plugin !== undefined)
      return callPlugin({ plugin, env, stdin, cwd }, signal, queueMs);
    if (stdin !== undefined) return runAsPlugin({ env, stdin }, signal, queueMs);
    return withWorkers(pool, workers =>
      collect(write => runCommand({ ...request, env, queueMs, workers }, write, signal)),
    );
  };
  return {
    get problem() {
      return pool.problem;
    },
    run(request, signal, queueMs) {
      const running = active.get(request.key) ?? begin(request, signal, queueMs);
      active.set(request.key, running);
      const forget = (): void => void active.delete(request.key);
      running.then(forget, forget);
      return running;
    },
    async answer(request, state) {
      const { pathname } = new URL(request.url);
      if (pathname === '/healthz') return new Response('ok\n');
      if (pathname === '/readyz') {
        const ready = await pool.ready();
        return new Response(ready ? 'ok\n' : 'no worker responds\n', { status: ready ? 200 : 503 });
      }
      if (pathname === STATE_PATH)
        return Response.json(
          inEnvelope('DaemonState', { pid: process.pid, ...state, pool: pool.state, ...facts() }),
        );
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
  work: (workers: WorkerSource) => Promise<RunReply>,
): Promise<RunAnswer> {
  const { workers, unserved } = noteUnserved(pool);
  const reply = await work(workers);
  if (unserved.why === undefined || reply.exitCode === 0) return reply;
  return { ...reply, ...declinedFor(unserved.why), begun: true };
}

async function collect(
  run: (write: (fd: 1 | 2, text: string) => void) => Promise<number>,
): Promise<RunReply> {
  const written = { 1: '', 2: '' };
  const exitCode = await run((fd, text) => {
    written[fd] += text;
  });
  return { exitCode, stdout: written[1], stderr: written[2] };
}

/** Environment for the call and its children: relative directories are resolved against the client's working directory. */
function environmentFor({ env, cwd }: RunRequest, queueMs: number): RunRequest['env'] {
  const { CNI_PATH, NETCONFPATH } = env;
  return {
    ...env,
    // A worker must not wait for a call that itself needs a worker (deadlock).
    [SERVED_VARIABLE]: '1',
    ...(env.CNI_COMMAND === 'GC' ? { [ASKED_VARIABLE]: String(Date.now() - queueMs) } : {}),
    ...(CNI_PATH
      ? {
          CNI_PATH: CNI_PATH.split(':')
            .map(dir => resolve(cwd, dir))
            .join(':'),
        }
      : {}),
    ...(NETCONFPATH ? { NETCONFPATH: resolve(cwd, NETCONFPATH) } : {}),
  };
}
