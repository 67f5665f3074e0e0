// What does a daemon do besides serving requests?

import type { NodeEvents } from '../../between/claims.ts';
import { type Keeping, startKeeping } from '../../between/keeper.ts';
import { openFilesSource } from '../../between/note.ts';
import { type BetweenSettings, BLOCKS, KUBERNETES } from '../../between/plan.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { recover } from '../../chain/records/recover.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { cacheDirOf, RUN_DIR_VARIABLE, runnerJournals } from '../../cni/directories.ts';
import { argOf, podNamedIn, UPKEEP_VARIABLE } from '../../cni/env.ts';
import { attempt, describeError } from '../../cni/errors.ts';
import { errorIn, type Invocation } from '../../cni/invocation.ts';
import { defined, memberOf } from '../../cni/json.ts';
import { NODE_VARIABLE, nodeName } from '../../cni/node-name.ts';
import type { WatchedCall } from '../../daemon/backend.ts';
import type { WorkerPool } from '../../daemon/pool.ts';
import { SERVED_VARIABLE } from '../../daemon/protocol.ts';
import type { DaemonSettings } from '../../daemon/settings.ts';
import { Upkeep } from '../../daemon/upkeep.ts';
import { type ClusterAccess, isInCluster } from '../../delegate/cluster.ts';
import { eventOf } from '../../delegate/cluster-pod.ts';
import { recoverPods } from '../../delegate/delete.ts';
import { FollowedPods } from '../../delegate/followed-pods.ts';
import { bootId } from '../../files/process-stat.ts';
import { absolutePath } from '../../files/read-file.ts';
import { appendHistory } from '../../observe/history.ts';
import type { Observer } from '../../observe/observer.ts';
import type { CallsInProgress } from '../../observe/watcher.ts';
import type { WatchedAttachment } from '../../watch/attachments.ts';
import type { Act } from '../../watch/caretaker.ts';
import type { WatchSettings } from '../../watch/settings.ts';
import { startWatching, type Watching } from '../../watch/watcher.ts';
import { type CommandCall, pathOf, runDirOf } from '../command.ts';
import { recoveryEvent } from '../log/events.ts';
import { confDirOf, runtimeOf } from '../target.ts';

interface BackgroundParts {
  readonly call: CommandCall;
  readonly stateDir: string;
  /** The name of this node, if it was given one. */
  readonly node: string | undefined;
  readonly pool: WorkerPool;
  readonly observer: Observer;
  /** Those that the daemon serves. */
  readonly calls: CallsInProgress;
  /** Whether any is being served that goes before what is done here, apart from those that take long. */
  isBusy(): boolean;
  /** Serves a call as if a runtime had made it. */
  readonly callPlugin: WatchedCall;
}

/** Recovery, upkeep, watch, routes to other nodes, and pods that follow their annotations. */
export type Background = ReturnType<typeof startBackground>;

export function startBackground(parts: BackgroundParts, settings: Pick<DaemonSettings, 'watch' | 'between'>) {
  const { call, stateDir, node, pool, observer, callPlugin } = parts;
  const env = { ...call.env, ...directoriesOf(call) };
  const stopRecovering = startRecovering(runtimeOf({ ...call, workers: pool }));
  const upkeeping = new Upkeep({
    ...{ stateDir, boot: bootId(call.env), log: observer.log },
    call: (invocation, signal) => callPlugin(invocation, signal, 0, pool),
    env: { ...env, ...(node ? { [NODE_VARIABLE]: node } : {}) },
  });
  const watching = watchAttachments(parts, settings.watch);
  const between = keepBetween(parts, settings.between);
  const following = startFollowing(parts, env);
  return {
    get watch() {
      return watching.state;
    },
    /** Undefined while there are no routes to keep. */
    get between() {
      return between.state;
    },
    /** Attachments and nodes for which the daemon must go on. */
    kept: () => upkeeping.kept + (between.state ? 1 : 0),
    /** A pod is new or changed, or may be. */
    podChanged: (...pod: Parameters<FollowedPods['changed']>) => following.changed(...pod),
    change(next: typeof settings) {
      watching.change(next.watch);
      between.change(next.between);
    },
    async stop() {
      between.stop();
      await Promise.all([stopRecovering(), upkeeping.stop(), watching.stop(), following.stop()]);
    },
  };
}

/** Directories given on the command line, for plugins that are called in the background. */
function directoriesOf(call: CommandCall): Record<string, string | undefined> {
  return defined({
    [RUN_DIR_VARIABLE]: pathOf(call, 'run-dir'),
    CATENA_STATE_DIR: pathOf(call, 'state-dir'),
  });
}

/** Interval between two looks at the journals; after a failure, an attachment waits longer each time. */
const INTERVAL_MS = 15_000;

/** Rounds at the same time. */
const AT_ONCE = 4;

/**
 * Undoes what crashes have left behind, at once and then at intervals, with retries of what failed. It covers the journals of the
 * tool, of the delegate runner's pods, and of their networks.
 * @returns a function that stops this; an attachment that is just being undone is left until the next recovery
 */
function startRecovering(runtime: Runtime): () => Promise<void> {
  const end = new AbortController();
  const { stateDir = '' } = runtime;
  const { pods, delegates } = runnerJournals(stateDir);
  const signal = runtime.signal ? AbortSignal.any([runtime.signal, end.signal]) : end.signal;
  const own = { ...runtime, signal };
  const round = async (all: boolean): Promise<void> => {
    const scope = { all };
    const undo = async (dir: string): Promise<void> => {
      const undone = [
        ...(dir === pods ? await recoverPods(pods, scope, own) : []),
        ...(await recover(scope, { ...own, stateDir: dir === pods ? delegates : dir })),
      ];
      appendHistory(
        stateDir,
        undone.map(one => recoveryEvent(one, 'daemon')),
      );
    };
    await Promise.all([stateDir, pods].map(undo));
  };
  const rounds = new Set<Promise<void>>();
  const begin = (all: boolean): void => {
    // One in which a plugin hangs holds up none that come after it: what it works on is claimed.
    if (rounds.size >= AT_ONCE) return;
    const running = round(all).finally(() => rounds.delete(running));
    rounds.add(running);
  };
  begin(true);
  const timer = setInterval(() => begin(false), INTERVAL_MS);
  return async () => {
    clearInterval(timer);
    end.abort();
    await Promise.all(rounds);
  };
}

/** Calls the delegate runner again for its pods whose annotation has changed. */
function startFollowing(
  { stateDir: own, callPlugin, observer, pool, isBusy }: BackgroundParts,
  env: Invocation['env'],
): FollowedPods {
  const asked = { CNI_COMMAND: 'CHECK', [UPKEEP_VARIABLE]: 'due', [SERVED_VARIABLE]: '1' };
  return new FollowedPods({
    podsDir: runnerJournals(own).pods,
    log: observer.log,
    isBusy,
    async call(follow, signal) {
      const invocation = { env: { ...env, ...follow.env, ...asked }, stdin: follow.stdin, cwd: '/' };
      const answer = await callPlugin(invocation, signal, 0, pool);
      if (answer.declined !== undefined) return answer.error;
      return answer.exitCode === 0 ? undefined : errorIn(answer).message;
    },
  });
}

/** A server that does not answer within this time counts as one that cannot be reached. */
const ANSWER_MS = 10_000;

/** The packages for a cluster are loaded only if the settings name one. */
function keepBetween({ call, observer }: BackgroundParts, settings: BetweenSettings): Keeping {
  const parts = {
    own: call.text('node-name') ?? nodeName(call.env, settings.kubeconfig),
    runDir: runDirOf(call),
    log: observer.log,
    openSource: async ({ nodes = '', kubeconfig }: BetweenSettings, events: NodeEvents) => {
      if (nodes !== KUBERNETES && nodes !== BLOCKS) return openFilesSource(nodes, events);
      const { openKubernetesSource } = await import('../../between/kubernetes-source.ts');
      return openKubernetesSource({ kubeconfig, timeoutMs: ANSWER_MS }, events, nodes);
    },
  };
  return startKeeping(parts, settings);
}

/** The observer is told of each repair and each deletion, as of a request. */
function watchAttachments(
  { call, pool, observer, calls, isBusy, stateDir: own }: BackgroundParts,
  settings: WatchSettings,
): Watching {
  // A worker must not wait for a call that itself needs a worker.
  const env = { ...call.env, [SERVED_VARIABLE]: '1' };
  const runtime = { ...runtimeOf({ ...call, env, workers: pool }), stateDir: own };
  const confDir = absolutePath(confDirOf(call), call.cwd);
  return startWatching(
    {
      runtime,
      journals: [runnerJournals(own).delegates],
      podsDir: runnerJournals(own).pods,
      cacheDir: cacheDirOf(runtime),
      confDir,
      isBusy,
      isInCall: containerId => calls.has(containerId),
      log: observer.log,
      acted: podEvents(confDir, env, observer.log),
      async traced(verb, { network, containerId, ifname, netns, args }, how, work, problemOf) {
        const facts = { verb, network, containerId, ifname, netns, args, by: 'daemon' } as const;
        const request = observer.begin(facts, env);
        const done = await work({ ...how, ...request.watch, env: request.env });
        const problem = problemOf(done);
        request.end(problem === undefined ? {} : { error: new Error(problem) });
        return done;
      },
    },
    settings,
  );
}

/** Reasons, for programs, and what is said before the problem. */
const EVENTS: Readonly<Record<Act, readonly [reason: string, type: 'Normal' | 'Warning', words: string]>> = {
  drifted: ['NetworkDamaged', 'Warning', 'is no longer as it was made'],
  'damaged often': ['NetworkDamagedOften', 'Warning', 'is damaged again and again'],
  repaired: ['NetworkRepaired', 'Normal', 'was repaired'],
  'given up': ['NetworkNotRepaired', 'Warning', 'cannot be repaired, or is damaged again each time'],
  'sound again': ['NetworkSound', 'Normal', 'is sound again'],
  deleted: ['NetworkDeleted', 'Normal', 'was deleted after its namespace had ended without a DEL'],
};

/** The same about the same attachment is told once in this time; the API server forgets events after an hour. */
const REPEATED_MS = 60 * 60_000;
const TIMEOUT_MS = 5_000;

/** Tells of an act. Returns at once and never throws. */
type TellAct = (act: Act, attachment: WatchedAttachment, problem: string) => void;

/**
 * Tells the cluster that a list of the configuration directory names, or that this process runs in; without one, nothing. Events are
 * sent one after the other, and their number is limited: the log has all of it.
 */
function podEvents(confDir: string, env: CommandCall['env'], log: Observer['log']): TellAct {
  const budget = new EventBudget(performance.now());
  let sending: Promise<void> = Promise.resolve();
  let isFailing = false;
  const send: TellAct = async (act, one, problem) => {
    const place = podNamedIn(one);
    const access = place && findAccess(confDir, env);
    if (place === undefined || access === undefined) return;
    if (!budget.take(performance.now())) return;
    const omitted = budget.takeOmitted();
    if (omitted > 0) log('info', 'events for the cluster were left out: there are too many', { omitted });
    try {
      const { openCluster } = await import('../../delegate/kubernetes.ts');
      const cluster = await openCluster(access);
      const uid = argOf(one, 'K8S_POD_UID') ?? (await cluster.findPod(place.namespace, place.name))?.uid;
      if (uid !== undefined)
        await cluster.addEvent(place.namespace, eventOf(place, { uid }, said(act, one, problem)));
      isFailing = false;
    } catch (error) {
      if (!isFailing)
        log('warn', 'cannot tell the cluster of attachments', { problem: describeError(error) });
      isFailing = true;
    }
  };
  return (act, one, problem) => {
    sending = sending.then(() => send(act, one, problem));
  };
}

function said(act: Act, { ifname, network, key }: WatchedAttachment, problem: string) {
  const [reason, type, words] = EVENTS[act];
  const message = `Interface "${ifname}" of network "${network}" ${words}${problem && `: ${problem}`}`;
  return { reason, type, message, about: `${key}\n${Math.floor(Date.now() / REPEATED_MS)}` };
}

/** How the runner's list says the cluster is reached. */
function findAccess(confDir: string, env: CommandCall['env']): ClusterAccess | undefined {
  const timeoutMs = TIMEOUT_MS;
  // None while the directory cannot be read.
  const networks = attempt(() => listNetworks(confDir).networks) ?? [];
  const confs = networks.flatMap(({ list }) => list.plugins.map(({ conf }) => conf));
  const named = confs.map(conf => memberOf(conf, 'kubeconfig')).filter(one => typeof one === 'string');
  const kubeconfig = named.find(one => one !== '');
  if (kubeconfig !== undefined) return { kubeconfig, timeoutMs };
  return isInCluster(env) ? { kubeconfig: undefined, timeoutMs } : undefined;
}

/** Events at once, and how often a further one is allowed: as client-go limits the events of one source. */
const EVENTS_AT_ONCE = 25;
const EVERY_MS = 12_000;

/** A number of events that grows with time up to a limit. */
export class EventBudget {
  #left = EVENTS_AT_ONCE;
  #at: number;
  #omitted = 0;

  constructor(now: number) {
    this.#at = now;
  }

  /** Whether an event may be sent now, which counts as sent. */
  take(now: number): boolean {
    this.#left = Math.min(EVENTS_AT_ONCE, this.#left + (now - this.#at) / EVERY_MS);
    this.#at = now;
    const isAllowed = this.#left >= 1;
    if (isAllowed) this.#left -= 1;
    else this.#omitted += 1;
    return isAllowed;
  }

  /** Events that were not allowed since this was last asked. */
  takeOmitted(): number {
    const omitted = this.#omitted;
    this.#omitted = 0;
    return omitted;
  }
}
