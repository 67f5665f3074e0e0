// What does `catena daemon` do?
import { cniCacheDir, runDir } from '../../cni/directories.ts';
import { makeBackend } from '../../daemon/backend.ts';
import type { GrpcServer } from '../../daemon/grpc.ts';
import { watchedCalls } from '../../daemon/plugin-calls.ts';
import { WorkerPool } from '../../daemon/pool.ts';
import { socketPathOf } from '../../daemon/protocol.ts';
import { type Server, startServer } from '../../daemon/server.ts';
import { DAEMON_LIMITS, type DaemonLimits, readSettings, watchSettings } from '../../daemon/settings.ts';
import { type Observer, openObserver } from '../../observe/observer.ts';
import { notifyServiceManager } from '../../sys/notify.ts';
import { compileEagerly } from '../../worker/eager.ts';
import { type CommandCall, UsageError } from '../command.ts';
import type { GrpcParts } from '../daemon/grpc-socket.ts';
import { hostFactsIn } from '../daemon/host-facts.ts';
import { countOf, observerOptionsOf } from '../daemon/observer-options.ts';
import { startRecovering } from '../daemon/recovery.ts';
import { runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Serves commands and plugin calls until a signal ends it; what was begun is finished first. */
export async function run(call: CommandCall): Promise<number> {
  const { env, links, signal, asPlugin, runCommand } = call;
  if (asPlugin === undefined)
    throw new UsageError('Cannot run as a daemon: only the compiled executable can');
  compileEagerly();
  const socket = socketPathOf(call.text('run-dir') ?? runDir(env));
  const options = observerOptionsOf(call);
  const base = limitsOf(call);
  const config = call.text('config');
  const limits = config === undefined ? base : readSettings(config, base);
  const pool = new WorkerPool(env, limits.pool);
  let server: Server | undefined;
  const observer = await openObserver({
    ...options,
    sources: sourcesOf(call, pool, () => server?.state),
  });
  const callPlugin = watchedCalls(observer, (plugin, end, watch) =>
    asPlugin(plugin, { workers: pool, signal: end, watch }),
  );
  const backend = makeBackend(
    pool,
    ({ args, env: own, cwd, key, queueMs }, write, end) => {
      const surroundings = {
        links,
        env: own,
        cwd,
        write,
        signal: end,
        workers: pool,
        asPlugin,
        request: key,
      };
      return runCommand(args, { ...surroundings, watcher: observer, queueMs });
    },
    callPlugin,
    readingsOf(observer),
  );
  server = startServer(socket, backend, limits.server);
  const unwatch = config === undefined ? undefined : follow(call, config, base, pool, server);
  const isHealthy = () => pool.ready();
  const grpc = await openGrpc(call, { observer, server, call: callPlugin, env, isHealthy }).catch(
    async error => {
      await server?.stop();
      throw error;
    },
  );
  call.err(`catena: listening on "${socket}"\n`);
  notifyServiceManager('READY=1', env.NOTIFY_SOCKET);
  const recovering = startRecovering(runtimeOf({ ...call, workers: pool }));
  await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve(), { once: true }));
  notifyServiceManager('STOPPING=1', env.NOTIFY_SOCKET);
  unwatch?.();
  await Promise.all([server.stop(), grpc?.close(), recovering.stop()]);
  pool.close();
  await observer.close();
  return 0;
}

function limitsOf(call: CommandCall): DaemonLimits {
  const { pool, server } = DAEMON_LIMITS;
  return {
    pool: { ...pool, workers: countOf(call, 'workers', pool.workers) },
    server: { ...server, requests: countOf(call, 'requests', server.requests) },
  };
}

function follow(
  call: CommandCall,
  file: string,
  base: DaemonLimits,
  pool: WorkerPool,
  server: Server,
): () => void {
  const apply = (limits: DaemonLimits): void => {
    pool.limits = limits.pool;
    server.setLimits(limits.server);
    call.err(`catena: settings of "${file}" are in force\n`);
  };
  return watchSettings(file, base, apply, problem => call.err(`catena: warning: ${problem}\n`));
}

/** Only who asked for gRPC has its packages in memory. */
async function openGrpc(
  call: CommandCall,
  parts: Omit<GrpcParts, 'socketPath'>,
): Promise<GrpcServer | undefined> {
  const socketPath = call.text('grpc-socket');
  if (socketPath === undefined) return undefined;
  const { openGrpcSocket } = await import('../daemon/grpc-socket.ts');
  return openGrpcSocket({ ...parts, socketPath });
}

/** Where the numbers of metrics come from. */
function sourcesOf(
  { env }: CommandCall,
  pool: WorkerPool,
  state: () => Server['state'] | undefined,
): Parameters<typeof openObserver>[0]['sources'] {
  const cacheDir = cniCacheDir(env);
  // The delegate runner keeps its own attachments beside those of the host's runtimes.
  const facts = hostFactsIn([cacheDir, `${cacheDir}/catena`]);
  return {
    version: TOOL_VERSION,
    workers: () => ({ idle: pool.state.workers - pool.state.busy, busy: pool.state.busy }),
    waitingCalls: () => pool.state.waiting,
    requests: () => ({ running: state()?.running ?? 0, queued: state()?.queued ?? 0 }),
    attachments: () => facts().attachments,
    leaked: () => facts().leaked,
    ranges: () => facts().ranges,
  };
}

function readingsOf({ metrics, traces }: Observer): Parameters<typeof makeBackend>[3] {
  return {
    traces,
    async metrics() {
      return new Response(await metrics.render(), { headers: { 'content-type': metrics.contentType } });
    },
  };
}
