// What does `catena daemon` do?
import { cniCacheDir, runDir } from '../../cni/directories.ts';
import { makeBackend } from '../../daemon/backend.ts';
import type { GrpcServer } from '../../daemon/grpc.ts';
import { linkCallsTo } from '../../daemon/link-calls.ts';
import { watchedCalls } from '../../daemon/plugin-calls.ts';
import { POOL_LIMITS, WorkerPool } from '../../daemon/pool.ts';
import { socketPathOf } from '../../daemon/protocol.ts';
import { SERVER_LIMITS, type Server, startServer } from '../../daemon/server.ts';
import {
  type CheckedSettings,
  type DaemonSettings,
  readSettings,
  watchSettings,
} from '../../daemon/settings.ts';
import { chooseObserver } from '../../observe/choices.ts';
import { type Observer, openObserver } from '../../observe/observer.ts';
import { notifyServiceManager } from '../../sys/notify.ts';
import { compileEagerly } from '../../worker/eager.ts';
import { type CommandCall, UsageError } from '../command.ts';
import type { GrpcParts } from '../daemon/grpc-socket.ts';
import { hostFactsIn } from '../daemon/host-facts.ts';
import { countOf, observeChoicesOf } from '../daemon/observer-options.ts';
import { startRecovering } from '../daemon/recovery.ts';
import { shareClusters } from '../daemon/shared-clusters.ts';
import { deadlinesOf, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** Serves commands and plugin calls until a signal ends it; what was begun is finished first. */
export async function run(call: CommandCall): Promise<number> {
  const { env, links, signal, asPlugin, runCommand } = call;
  if (asPlugin === undefined)
    throw new UsageError('Cannot run as a daemon: only the compiled executable can');
  compileEagerly();
  const socket = socketPathOf(call.text('run-dir') ?? runDir(env));
  const base = settingsOf(call);
  const config = call.text('config');
  let settings =
    config === undefined
      ? { ...base, observer: chooseObserver(base.observe, env) }
      : readSettings(config, base, env);
  const pool = new WorkerPool(env, settings.pool);
  let server: Server | undefined;
  const observer = await openObserver({
    ...settings.observer,
    sources: sourcesOf(call, pool, () => server?.state),
  });
  const clusters = shareClusters(call.text('node-name') ?? env.CATENA_NODE_NAME, observer);
  const callPlugin = watchedCalls(observer, (plugin, end, watch) =>
    asPlugin(plugin, {
      ...{ workers: pool, signal: end, watch, deadlines: settings.deadlines },
      openCluster: clusters.open,
    }),
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
        deadlines: settings.deadlines,
      };
      return runCommand(args, { ...surroundings, watcher: observer, queueMs });
    },
    { runAsPlugin: callPlugin, runLink: watchedCalls(observer, linkCallsTo(pool)) },
    readingsOf(observer),
  );
  server = await startServer(socket, backend, settings.server);
  const unwatch = follow(call, config, base, async next => {
    const observed = JSON.stringify(next.observer) !== JSON.stringify(settings.observer);
    if (observed) await observer.change(next.observer);
    settings = next;
    pool.limits = next.pool;
    server?.setLimits(next.server);
  });
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
  unwatch();
  await Promise.all([server.stop(), grpc?.close(), recovering.stop()]);
  pool.close();
  clusters.close();
  await observer.close();
  return 0;
}

function settingsOf(call: CommandCall): DaemonSettings {
  return {
    pool: { ...POOL_LIMITS, workers: countOf(call, 'workers', POOL_LIMITS.workers) },
    server: { ...SERVER_LIMITS, requests: countOf(call, 'requests', SERVER_LIMITS.requests) },
    deadlines: deadlinesOf(call) ?? {},
    observe: observeChoicesOf(call),
  };
}

/** Has a file that changes be applied. @returns ends that */
function follow(
  call: CommandCall,
  file: string | undefined,
  base: DaemonSettings,
  apply: (settings: CheckedSettings) => Promise<void>,
): () => void {
  if (file === undefined) return () => {};
  const report = async (settings: CheckedSettings): Promise<void> => {
    await apply(settings);
    call.err(`catena: settings of "${file}" are in force\n`);
  };
  return watchSettings(file, base, call.env, report, problem => call.err(`catena: warning: ${problem}\n`));
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
