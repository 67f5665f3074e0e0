// What does `catena daemon` do?

import { dirname } from 'node:path';
import type { Keeping } from '../../between/keeper.ts';
import { BETWEEN_SETTINGS } from '../../between/settings.ts';
import { RUN_DIR, RUN_DIR_VARIABLE, runDir, stateDir } from '../../cni/directories.ts';
import { NODE_VARIABLE, nodeNameGiven } from '../../cni/node-name.ts';
import { makeBackend, pluginCallsTo, watchedCalls, withWorkers } from '../../daemon/backend.ts';
import { DeclinedCalls } from '../../daemon/declined-calls.ts';
import { serveEarlyClients } from '../../daemon/early-clients.ts';
import type { GrpcServer } from '../../daemon/grpc.ts';
import { isAtHome, isInTheWayOf } from '../../daemon/on-demand.ts';
import { POOL_LIMITS, WorkerPool } from '../../daemon/pool.ts';
import { ON_DEMAND_VARIABLE, socketPathOf, wireOf } from '../../daemon/protocol.ts';
import { SERVER_LIMITS } from '../../daemon/request-limiter.ts';
import { type Server, type ServerEvents, startServer } from '../../daemon/server.ts';
import {
  type CheckedSettings,
  type DaemonSettings,
  readSettings,
  watchSettings,
} from '../../daemon/settings.ts';
import { startUpkeep } from '../../daemon/upkeep.ts';
import { SeatTaken } from '../../daemon/who-listens.ts';
import type { FollowedPods } from '../../delegate/followed-pods.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { bootId } from '../../files/boot-id.ts';
import type { LogFields, LogLevel } from '../../log.ts';
import { CallsInProgress } from '../../observe/calls-in-progress.ts';
import { chooseObserver } from '../../observe/choices.ts';
import { withHistory } from '../../observe/history.ts';
import { type Observer, openObserver } from '../../observe/observer.ts';
import { takeListeningSockets } from '../../sys/listen-fds.ts';
import { notifyServiceManager } from '../../sys/notify.ts';
import { WATCH_SETTINGS } from '../../watch/settings.ts';
import type { Watching } from '../../watch/watcher.ts';
import { compileEagerly } from '../../worker/eager.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { keepBetween } from '../daemon/between.ts';
import { DaemonEnd } from '../daemon/daemon-end.ts';
import { startFollowing } from '../daemon/following.ts';
import type { GrpcParts } from '../daemon/grpc-socket.ts';
import { watchIdle } from '../daemon/idle-exit.ts';
import { metricsAddressOf, serveMetrics } from '../daemon/metrics.ts';
import { countOf, observeChoicesOf } from '../daemon/observer-options.ts';
import { readingsOf, sourcesOf } from '../daemon/readings.ts';
import { startRecovering } from '../daemon/recovery.ts';
import { shareClusters } from '../daemon/shared-clusters.ts';
import { petWatchdog } from '../daemon/watchdog.ts';
import { watchAttachments } from '../daemon/watching.ts';
import { SOCKET_TAKEN } from '../exit-codes.ts';
import { secondsIn } from '../seconds.ts';
import { deadlinesOf, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/**
 * Serves commands and plugin calls until a signal ends the daemon. Requests in progress are finished first. Or says what another
 * daemon does, or ends it.
 */
export async function run(call: CommandCall): Promise<number> {
  if (call.on('stop')) return (await import('../daemon/control.ts')).stopDaemon(call);
  if (call.on('status')) return (await import('../daemon/control.ts')).showStatus(call);
  return serve(call);
}

async function serve(call: CommandCall): Promise<number> {
  const { env, signal, asPlugin } = call;
  if (asPlugin === undefined)
    throw new UsageError('Cannot run as a daemon: this needs the compiled executable');
  compileEagerly();
  const listening = takeListeningSockets();
  const isOnDemand = process.env[ON_DEMAND_VARIABLE] !== undefined;
  const isManaged = listening.length > 0 || Boolean(env.NOTIFY_SOCKET);
  const startedBy = isManaged ? 'systemd' : isOnDemand ? 'on-demand' : 'command';
  const socket = absolutePath(socketPathOf(call.text('run-dir') ?? runDir(env)), call.cwd);
  const base = settingsOf(call);
  const config = pathOf(call, 'config');
  const grpcSocket = pathOf(call, 'grpc-socket');
  const metricsAt = metricsAddressOf(call);
  let settings =
    config === undefined
      ? { ...base, observer: chooseObserver(base.observe, env) }
      : readSettings(config, base, env);
  // The working directory can then be deleted, and its file system unmounted.
  process.chdir('/');
  const end = new DaemonEnd(signal, text => call.err(`catena: ${text}\n`));
  let observer: Observer | undefined;
  const log = (level: LogLevel, message: string, fields?: LogFields) => observer?.log(level, message, fields);
  const declined = new DeclinedCalls((message, fields) => log('warn', message, fields));
  const pool = new WorkerPool(env, settings.pool, {
    failing: problem => log('error', 'cannot start workers; clients run their calls themselves', { problem }),
    recovered: () => log('info', 'workers can be started again'),
    hopeless: problem => end.come(1, `no worker could be started for a while (${problem}): the daemon exits`),
  });
  let server: Server | undefined;
  let watching: Watching | undefined;
  let following: FollowedPods | undefined;
  let between: Keeping | undefined;
  observer = await openObserver({
    ...settings.observer,
    sources: {
      ...(await sourcesOf(call, pool, () => server?.state)),
      declined: () => declined.counts,
      watch: () => watching?.state,
      between: () => between?.state,
    },
  });
  const watcher = observer;
  const node = call.text('node-name') ?? nodeNameGiven(env);
  const clusters = shareClusters(node, watcher, (...pod) => following?.changed(...pod));
  const history = call.text('state-dir') || stateDir(env);
  const calls = new CallsInProgress();
  const noting = calls.noting(withHistory(watcher, history, 'runtime'));
  const callWorker = pluginCallsTo(pool);
  const serveCall = watchedCalls(noting, (invocation, abort, watch) => {
    if (invocation.plugin !== undefined) return callWorker(invocation, abort, watch);
    const { deadlines } = settings;
    const surroundings = { signal: abort, watch, deadlines, openCluster: clusters.open };
    return withWorkers(pool, workers => asPlugin(invocation, { ...surroundings, workers }));
  });
  const backend = makeBackend(
    pool,
    ({ args, key, ...its }, write, abort) =>
      call.runCommand(args, {
        ...its,
        write,
        asPlugin,
        watcher: calls.noting(withHistory(watcher, history, 'daemon')),
        plugins: call.plugins,
        signal: abort,
        request: key,
        deadlines: settings.deadlines,
      }),
    { call: serveCall, node },
    readingsOf(watcher),
    () => ({
      version: TOOL_VERSION,
      program: process.execPath,
      place: server?.place,
      startedBy,
      sockets: [socket, wireOf(socket), ...(grpcSocket === undefined ? [] : [grpcSocket])],
      uptimeSeconds: Math.floor(process.uptime()),
      idleExitSeconds: settings.idleExitMs && settings.idleExitMs / 1000,
      problem: pool.problem,
      declined: declined.counts,
      watch: watching?.state,
      between: between?.state,
    }),
  );
  let passedBy = 0;
  const events: ServerEvents = {
    declined(reason, detail, from) {
      declined.add(reason, detail);
      if (isOnDemand && from !== undefined && isInTheWayOf(from)) passedBy += 1;
    },
    restored: why => log('warn', why),
    stopped: () => end.come(0, 'asked to stop: the daemon exits'),
    replaced: why => end.come(SOCKET_TAKEN, `${why}: the daemon exits`),
  };
  try {
    server = await startServer(socket, backend, events, {
      limits: settings.server,
      replace: call.on('replace'),
      version: TOOL_VERSION,
      ownStart: { program: process.execPath, args: process.argv.slice(2), cwd: call.cwd, isManaged },
    });
  } catch (error) {
    pool.close();
    clusters.close();
    await watcher.close();
    if (!(error instanceof SeatTaken)) throw error;
    call.err(`catena: ${error.message}\n`);
    return SOCKET_TAKEN;
  }
  const stopEarly = serveEarlyClients(listening, socket);
  const unwatch = follow(call, config, base, async next => {
    const observed = JSON.stringify(next.observer) !== JSON.stringify(settings.observer);
    if (observed) await watcher.change(next.observer);
    settings = next;
    pool.limits = next.pool;
    watching?.change(next.watch);
    between?.change(next.between);
    server?.setLimits(next.server);
  });
  const isHealthy = () => pool.ready();
  const parts = { observer: watcher, server, call: serveCall, env, isHealthy };
  const grpc = await openGrpc(grpcSocket, parts).catch(async error => {
    await server?.stop();
    throw error;
  });
  call.err(`catena: listening on "${socket}"\n`);
  if (dirname(socket) === RUN_DIR && !isAtHome(undefined))
    call.err(
      'catena: warning: this is another network or mount namespace than that of process 1, whose calls are all declined; end this daemon, or give it a --run-dir of its own\n',
    );
  const closeMetrics = metricsAt && serveMetrics(call, metricsAt, watcher.metrics);
  notifyServiceManager('READY=1', env.NOTIFY_SOCKET);
  const petting = petWatchdog(env);
  const recovering = startRecovering(runtimeOf({ ...call, workers: pool }));
  const upkeeping = startUpkeep({
    stateDir: history,
    boot: bootId(env),
    call: serveCall,
    env: { ...env, ...directoriesOf(call), ...(node ? { [NODE_VARIABLE]: node } : {}) },
    log,
  });
  const acting = withHistory(watcher, history, 'daemon');
  watching = watchAttachments(call, pool, watcher, acting, calls, settings.watch);
  between = keepBetween(call, watcher, settings.between);
  following = startFollowing({
    stateDir: history,
    callRunner: serveCall,
    observer: watcher,
    env: { ...env, ...directoriesOf(call) },
  });
  const { activity } = server;
  const unwatchIdle = watchIdle(
    () => ({ ...activity(), kept: upkeeping.kept() + (between?.state ? 1 : 0), passedBy }),
    () => settings.idleExitMs,
    idleMs => end.come(0, `no request for ${Math.round(idleMs / 1000)} s: the daemon exits`),
  );
  const { exitCode, reason } = await end.reached;
  if (reason !== undefined) log(exitCode === 0 ? 'info' : 'error', reason);
  notifyServiceManager('STOPPING=1', env.NOTIFY_SOCKET);
  stopEarly();
  unwatch();
  unwatchIdle();
  // A successor waits for the address.
  closeMetrics?.();
  between.stop();
  await Promise.all([
    server.stop(),
    grpc?.close(),
    recovering.stop(),
    upkeeping.stop(),
    watching.stop(),
    following.stop(),
  ]);
  petting();
  pool.close();
  clusters.close();
  await watcher.close();
  return exitCode;
}

/** A path on the command line. It is made absolute, since the process leaves the directory that it is relative to. */
function pathOf(call: CommandCall, option: string): string | undefined {
  const text = call.text(option);
  return text === undefined ? undefined : absolutePath(text, call.cwd);
}

/** Directories given on the command line, for plugins that are called in the background. */
function directoriesOf(call: CommandCall): Record<string, string> {
  const [runs, state] = [pathOf(call, 'run-dir'), pathOf(call, 'state-dir')];
  return { ...(runs ? { [RUN_DIR_VARIABLE]: runs } : {}), ...(state ? { CATENA_STATE_DIR: state } : {}) };
}

function settingsOf(call: CommandCall): DaemonSettings {
  return {
    pool: { ...POOL_LIMITS, workers: countOf(call, 'workers', POOL_LIMITS.workers) },
    server: { ...SERVER_LIMITS, requests: countOf(call, 'requests', SERVER_LIMITS.requests) },
    deadlines: deadlinesOf(call) ?? {},
    observe: observeChoicesOf(call),
    watch: WATCH_SETTINGS,
    between: BETWEEN_SETTINGS,
    idleExitMs: secondsOf(call, 'idle-exit'),
  };
}

function secondsOf(call: CommandCall, option: string): number | undefined {
  const text = call.text(option);
  return text === undefined ? undefined : 1_000 * secondsIn(text, `--${option} "${text}"`);
}

/** Applies the settings file whenever it changes. @returns a function that stops this */
function follow(
  call: CommandCall,
  file: string | undefined,
  base: DaemonSettings,
  apply: (settings: CheckedSettings) => Promise<void>,
): () => void {
  if (file === undefined) return () => {};
  const report = async (settings: CheckedSettings): Promise<void> => {
    await apply(settings);
    call.err(`catena: reloaded settings from "${file}"\n`);
  };
  return watchSettings(file, base, call.env, report, problem => call.err(`catena: warning: ${problem}\n`));
}

/** The gRPC packages are loaded only if gRPC is enabled. */
async function openGrpc(
  socketPath: string | undefined,
  parts: Omit<GrpcParts, 'socketPath'>,
): Promise<GrpcServer | undefined> {
  if (socketPath === undefined) return undefined;
  const { openGrpcSocket } = await import('../daemon/grpc-socket.ts');
  return openGrpcSocket({ ...parts, socketPath });
}
