// How does the daemon run what clients send it?
import { resolve } from 'node:path';
import type { LinkRequest } from './link-calls.ts';
import type { WatchedCall } from './plugin-calls.ts';
import type { WorkerPool } from './pool.ts';
import { type RunReply, type RunRequest, SERVED_VARIABLE } from './protocol.ts';
import type { Backend } from './server.ts';

/** A command line, run as its own process would, with its writing collected. */
export type RunCommand = (
  call: Pick<RunRequest, 'args' | 'env' | 'cwd' | 'key'> & { readonly queueMs: number },
  write: (fd: 1 | 2, text: string) => void,
  signal: AbortSignal,
) => Promise<number>;

/** What can be read over HTTP besides the daemon's own state. */
export interface Readings {
  /** The page for Prometheus. */
  metrics(): Promise<Response>;
  /** Recent requests, or the one whose id begins like this; undefined when there is none. */
  traces(id: string | undefined): object | undefined;
}

/** Runs commands and calls as a plugin; tells over HTTP how the daemon is. */
export function makeBackend(
  pool: WorkerPool,
  runCommand: RunCommand,
  { runAsPlugin, runLink }: { readonly runAsPlugin: WatchedCall; readonly runLink: WatchedCall<LinkRequest> },
  readings: Readings,
): Backend {
  const active = new Map<string, Promise<RunReply>>();
  const begin = (request: RunRequest, signal: AbortSignal, queueMs: number): Promise<RunReply> => {
    const { stdin, link, cwd } = request;
    const env = environmentFor(request);
    if (stdin !== undefined && link !== undefined) return runLink({ link, env, stdin, cwd }, signal, queueMs);
    if (stdin !== undefined) return runAsPlugin({ env, stdin }, signal, queueMs);
    return collect(write => runCommand({ ...request, env, queueMs }, write, signal));
  };
  return {
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
        return new Response(ready ? 'ok\n' : 'no worker answers\n', { status: ready ? 200 : 503 });
      }
      if (pathname === '/v1/state') return Response.json({ pid: process.pid, ...state, pool: pool.state });
      if (pathname === '/metrics') return readings.metrics();
      const [, isTraces, id] = /^(\/v1\/traces)(?:\/([\da-z]+))?$/.exec(pathname) ?? [];
      const traces = isTraces && readings.traces(id);
      return traces ? Response.json(traces) : undefined;
    },
  };
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

/** What the call and its children get: directories in the environment mean those of the client. */
function environmentFor({ env, cwd }: RunRequest): RunRequest['env'] {
  const { CNI_PATH, NETCONFPATH } = env;
  return {
    ...env,
    // Who waits for a worker, and has none to itself meanwhile, may not be waited for by one.
    [SERVED_VARIABLE]: '1',
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
