// What does `catena daemon` do?

import { dirname } from 'node:path';
import { BETWEEN_SETTINGS } from '../../between/plan.ts';
import { RUN_DIR } from '../../cni/directories.ts';
import { describeError } from '../../cni/errors.ts';
import { nodeNameGiven } from '../../cni/node-name.ts';
import {
  directoriesFrom,
  makeBackend,
  type WatchedCall,
  watchedCalls,
  withWorkers,
} from '../../daemon/backend.ts';
import { serveEarlyClients } from '../../daemon/door.ts';
import type { GrpcServer } from '../../daemon/grpc.ts';
import { isAtHome, isInTheWayOf } from '../../daemon/on-demand.ts';
import { POOL_LIMITS, WorkerPool } from '../../daemon/pool.ts';
import { ON_DEMAND_VARIABLE, socketPathOf, wireOf } from '../../daemon/protocol.ts';
import {
  type Backend,
  DeclinedCalls,
  type Server,
  type ServerEvents,
  startServer,
} from '../../daemon/server.ts';
import {
  type CheckedSettings,
  type DaemonSettings,
  readSettings,
  watchSettings,
} from '../../daemon/settings.ts';
import { SeatTaken } from '../../daemon/who-listens.ts';
import type { Cluster, ClusterAccess } from '../../delegate/cluster.ts';
import type { LogFields, LogLevel } from '../../log.ts';
import { chooseObserver, type Observer, openObserver } from '../../observe/observer.ts';
import { CallsInProgress } from '../../observe/watcher.ts';
import { compileEagerly } from '../../sys/process.ts';
import { notifyServiceManager, takeListeningSockets } from '../../sys/service-manager.ts';
import { WATCH_SETTINGS } from '../../watch/settings.ts';
import {
  type AsPlugin,
  type CommandCall,
  pathOf,
  runDirOf,
  secondsOf,
  TOOL_VERSION,
  UsageError,
} from '../command.ts';
import type { Background } from '../daemon/background.ts';
import { DaemonEnd, petWatchdog, watchIdle } from '../daemon/daemon-end.ts';
import { countOf, observeChoicesOf } from '../daemon/observer-options.ts';
import { metricsListenerOf, readingsOf, sourcesOf } from '../daemon/readings.ts';
import { SOCKET_TAKEN } from '../exit-codes.ts';
import { deadlinesOf, stateDirOf } from '../target.ts';

/** Serves commands and plugin calls until a signal ends the daemon. Requests in progress are finished first. */
export async function run(call: CommandCall): Promise<number> {
  const { asPlugin } = call;
  if (asPlugin === undefined)
    throw new UsageError('Cannot run as a daemon: this needs the compiled executable');
  compileEagerly();
  const listening = takeListeningSockets();
  const place = placeOf(call, listening.length > 0);
  const base = settingsOf(call);
  const config = pathOf(call, 'config');
  const listenForMetrics = metricsListenerOf(call);
  const settings =
    config === undefined
      ? { ...base, observer: chooseObserver(base.observe, call.env) }
      : readSettings(config, base, call.env);
  // The working directory can then be deleted, and its file system unmounted. What is named from there stays where it is.
  if (call.cwd !== undefined) Object.assign(process.env, directoriesFrom(call.cwd, process.env));
  process.chdir('/');
  const daemon = new Daemon({ ...call, asPlugin }, place, settings);
  if (!(await daemon.open())) return SOCKET_TAKEN;
  const stopEarly = serveEarlyClients(listening, place.socket);
  const unwatch = config === undefined ? undefined : follow(call, config, base, daemon);
  call.err(`catena: listening on "${place.socket}"\n`);
  if (dirname(place.socket) === RUN_DIR && !isAtHome(undefined))
    call.err(
      'catena: warning: this is another network or mount namespace than that of process 1, whose calls are all declined; end this daemon, or give it a --run-dir of its own\n',
    );
  const closeMetrics = listenForMetrics?.(daemon.metrics);
  notifyServiceManager('READY=1', call.env.NOTIFY_SOCKET);
  const petting = petWatchdog(call.env);
  const exitCode = await daemon.work();
  notifyServiceManager('STOPPING=1', call.env.NOTIFY_SOCKET);
  stopEarly();
  unwatch?.();
  // A successor waits for the address.
  closeMetrics?.();
  await daemon.close();
  petting();
  return exitCode;
}

/** Where a daemon listens, and how it was started. */
interface DaemonPlace {
  readonly socket: string;
  readonly grpcSocket: string | undefined;
  readonly startedBy: 'command' | 'systemd' | 'on-demand';
}

function placeOf(call: CommandCall, hasSockets: boolean): DaemonPlace {
  const isOnDemand = process.env[ON_DEMAND_VARIABLE] !== undefined;
  const isManaged = hasSockets || Boolean(call.env.NOTIFY_SOCKET);
  return {
    socket: socketPathOf(runDirOf(call)),
    grpcSocket: pathOf(call, 'grpc-socket'),
    startedBy: isManaged ? 'systemd' : isOnDemand ? 'on-demand' : 'command',
  };
}

type DaemonCall = CommandCall & { readonly asPlugin: AsPlugin };

/** The parts of a daemon, which know of each other only through it. */
class Daemon {
  readonly #call: DaemonCall;
  readonly #place: DaemonPlace;
  readonly #end: DaemonEnd;
  readonly #pool: WorkerPool;
  readonly #node: string | undefined;
  readonly #stateDir: string;
  readonly #calls = new CallsInProgress();
  readonly #declined = new DeclinedCalls((message, fields) => this.#log('warn', message, fields));
  #settings: CheckedSettings;
  #observer: Observer | undefined;
  #clusters: ReturnType<typeof shareClusters> | undefined;
  #server: Server | undefined;
  #grpc: GrpcServer | undefined;
  #background: Background | undefined;
  /** Calls that it declined, and that a daemon in its place could have served. */
  #passedBy = 0;

  constructor(call: DaemonCall, place: DaemonPlace, settings: CheckedSettings) {
    [this.#call, this.#place, this.#settings] = [call, place, settings];
    this.#end = new DaemonEnd(call.signal, text => call.err(`catena: ${text}\n`));
    this.#node = call.text('node-name') ?? nodeNameGiven(call.env);
    this.#stateDir = stateDirOf(call);
    this.#pool = new WorkerPool(call.env, settings.pool, {
      failing: problem =>
        this.#log('error', 'cannot start workers; clients run their calls themselves', { problem }),
      recovered: () => this.#log('info', 'workers can be started again'),
      hopeless: problem =>
        this.#end.come(1, `no worker could be started for a while (${problem}): the daemon exits`),
    });
  }

  get metrics(): Observer['metrics'] {
    return this.#watcher.metrics;
  }

  get #watcher(): Observer {
    if (this.#observer === undefined) throw new Error('the daemon is not open');
    return this.#observer;
  }

  readonly #isBusy = (): boolean => this.#pool.state.queued > 0 || this.#calls.hasYoung();

  #log(level: LogLevel, message: string, fields?: LogFields): void {
    this.#observer?.log(level, message, fields);
  }

  /** Opens everything and serves. @returns false if another daemon has the socket */
  async open(): Promise<boolean> {
    const call = this.#call;
    this.#observer = await openObserver({
      ...this.#settings.observer,
      stateDir: this.#stateDir,
      isBusy: this.#isBusy,
      sources: {
        ...(await sourcesOf(call, this.#pool)),
        declined: () => this.#declined.counts,
        watch: () => this.#background?.watch,
        between: () => this.#background?.between,
      },
    });
    const observer = this.#observer;
    const clusters = shareClusters(this.#node, observer, (...pod) => this.#background?.podChanged(...pod));
    this.#clusters = clusters;
    const callPlugin = this.#callsBy(clusters);
    try {
      await this.#listen(callPlugin);
    } catch (error) {
      await this.close();
      const isTaken = error instanceof SeatTaken && this.#server === undefined;
      if (!isTaken) throw error;
      call.err(`catena: ${error.message}\n`);
      return false;
    }
    const [node, own, pool, calls] = [this.#node, this.#stateDir, this.#pool, this.#calls];
    const parts = { call, node, stateDir: own, pool, calls, observer, callPlugin, isBusy: this.#isBusy };
    // It is loaded while clients are served.
    const { startBackground } = await import('../daemon/background.ts');
    this.#background = startBackground(parts, this.#settings);
    return true;
  }

  /** Serves until the daemon is to end. @returns its exit code */
  async work(): Promise<number> {
    const unwatchIdle = watchIdle(
      () => ({
        ...this.#pool.state,
        connections: this.#server?.connections ?? 0,
        kept: this.#background?.kept() ?? 0,
        passedBy: this.#passedBy,
      }),
      () => this.#settings.idleExitMs,
      idleMs => this.#end.come(0, `no request for ${Math.round(idleMs / 1000)} s: the daemon exits`),
    );
    const { exitCode, reason } = await this.#end.reached;
    if (reason !== undefined) this.#log(exitCode === 0 ? 'info' : 'error', reason);
    unwatchIdle();
    return exitCode;
  }

  async change(next: CheckedSettings): Promise<void> {
    if (JSON.stringify(next.observer) !== JSON.stringify(this.#settings.observer))
      await this.#watcher.change(next.observer);
    this.#settings = next;
    this.#pool.limits = next.pool;
    this.#background?.change(next);
  }

  /** Answers the requests that it has, and closes everything. */
  async close(): Promise<void> {
    await Promise.all([this.#server?.stop(), this.#grpc?.close(), this.#background?.stop()]);
    this.#pool.close();
    this.#clusters?.close();
    await this.#observer?.close();
  }

  async #listen(callPlugin: WatchedCall): Promise<void> {
    const call = this.#call;
    const { socket, grpcSocket, startedBy } = this.#place;
    const server = await startServer(socket, this.#backend(callPlugin), this.#events(), {
      replace: call.on('replace'),
      version: TOOL_VERSION,
      ownStart: {
        ...{ program: process.execPath, args: process.argv.slice(2), cwd: call.cwd },
        isManaged: startedBy === 'systemd',
      },
    });
    this.#server = server;
    if (grpcSocket === undefined) return;
    // The gRPC packages are loaded only if gRPC is enabled.
    const { openGrpcSocket } = await import('../daemon/grpc-socket.ts');
    const parts = { observer: this.#watcher, pool: this.#pool, call: callPlugin, env: call.env };
    this.#grpc = await openGrpcSocket({ ...parts, socketPath: grpcSocket });
  }

  /** Calls of plugins by workers, and of the delegate runner in this process. */
  #callsBy({ open: openCluster }: ReturnType<typeof shareClusters>): WatchedCall {
    const watcher = this.#calls.noting(this.#watcher);
    return watchedCalls(watcher, (invocation, signal, watch, workers) => {
      const surroundings = { signal, watch, deadlines: this.#settings.deadlines, openCluster };
      return withWorkers(workers, own => this.#call.asPlugin(invocation, { ...surroundings, workers: own }));
    });
  }

  #backend(callPlugin: WatchedCall): Backend {
    const { runCommand, asPlugin, plugins } = this.#call;
    const watcher = this.#calls.noting(this.#watcher);
    return makeBackend(
      this.#pool,
      ({ args, key, ...its }, write, signal) => {
        const own = { write, signal, request: key, watcher, asPlugin, plugins };
        return runCommand(args, { ...its, ...own, deadlines: this.#settings.deadlines });
      },
      { call: callPlugin, node: this.#node },
      readingsOf(this.#watcher),
      () => this.#facts(),
    );
  }

  #facts(): object {
    const { socket, grpcSocket, startedBy } = this.#place;
    const { idleExitMs } = this.#settings;
    return {
      version: TOOL_VERSION,
      program: process.execPath,
      place: this.#server?.place,
      startedBy,
      sockets: [socket, wireOf(socket), ...(grpcSocket === undefined ? [] : [grpcSocket])],
      uptimeSeconds: Math.floor(process.uptime()),
      idleExitSeconds: idleExitMs && idleExitMs / 1000,
      problem: this.#pool.problem,
      declined: this.#declined.counts,
      watch: this.#background?.watch,
      between: this.#background?.between,
    };
  }

  #events(): ServerEvents {
    return {
      declined: (reason, detail, from) => {
        this.#declined.add(reason, detail);
        const isInTheWay = this.#place.startedBy === 'on-demand' && from !== undefined && isInTheWayOf(from);
        if (isInTheWay) this.#passedBy += 1;
      },
      restored: why => this.#log('warn', why),
      stopped: () => this.#end.come(0, 'asked to stop: the daemon exits'),
      replaced: why => this.#end.come(SOCKET_TAKEN, `${why}: the daemon exits`),
    };
  }
}

function settingsOf(call: CommandCall): DaemonSettings {
  const idleS = secondsOf(call, 'idle-exit', undefined);
  return {
    pool: { ...POOL_LIMITS, workers: countOf(call, 'workers', POOL_LIMITS.workers) },
    deadlines: deadlinesOf(call) ?? {},
    observe: observeChoicesOf(call),
    watch: WATCH_SETTINGS,
    between: BETWEEN_SETTINGS,
    idleExitMs: idleS && 1_000 * idleS,
  };
}

/** Applies the settings file whenever it changes. @returns a function that stops this */
function follow(call: CommandCall, file: string, base: DaemonSettings, daemon: Daemon): () => void {
  const report = async (settings: CheckedSettings): Promise<void> => {
    await daemon.change(settings);
    call.err(`catena: reloaded settings from "${file}"\n`);
  };
  return watchSettings(file, base, call.env, report, problem => call.err(`catena: warning: ${problem}\n`));
}

/**
 * Opens clusters for the calls of a daemon. A cluster and its packages are loaded only if a configuration names one.
 * @param nodeName node whose pods are watched as well
 * @param onPod called with each of these pods that is new or changed
 */
function shareClusters(
  nodeName: string | undefined,
  observer: Pick<Observer, 'log'>,
  onPod: Background['podChanged'],
) {
  const load = async () => {
    const { watchClusters } = await import('../../delegate/watched-clusters.ts');
    const warn = (what: string) => (problem: unknown) =>
      observer.log('warn', what, { error: describeError(problem) });
    const onUntold = warn('cannot report an event to the cluster');
    return watchClusters({ nodeName, onProblem: warn('cannot watch a cluster'), onUntold, onPod });
  };
  let shared: ReturnType<typeof load> | undefined;
  return {
    async open(access: ClusterAccess): Promise<Cluster> {
      shared ??= load();
      return (await shared).open(access);
    },
    close: () => void shared?.then(clusters => clusters.close()),
  };
}
