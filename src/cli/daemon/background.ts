// What does a daemon do besides serving requests?

import type { NodeEvents } from '../../between/claims.ts';
import { openFilesSource } from '../../between/files-source.ts';
import { type Keeping, startKeeping } from '../../between/keeper.ts';
import { type BetweenSettings, BLOCKS, KUBERNETES } from '../../between/settings.ts';
import { recover } from '../../chain/records/recover.ts';
import { cacheDirOf, type Runtime } from '../../chain/run/runtime.ts';
import { RUN_DIR_VARIABLE, runDir, runnerJournals } from '../../cni/directories.ts';
import { UPKEEP_VARIABLE } from '../../cni/env.ts';
import { errorIn, type Invocation } from '../../cni/invocation.ts';
import { NODE_VARIABLE, nodeName } from '../../cni/node-name.ts';
import { SERVED_VARIABLE } from '../../daemon/protocol.ts';
import type { DaemonSettings } from '../../daemon/settings.ts';
import { Upkeep } from '../../daemon/upkeep.ts';
import { recoverPods } from '../../delegate/delete.ts';
import { FollowedPods } from '../../delegate/followed-pods.ts';
import { bootId } from '../../files/process-stat.ts';
import { absolutePath } from '../../files/read-file.ts';
import { appendHistory, withHistory } from '../../observe/history.ts';
import type { RequestWatcher } from '../../observe/watcher.ts';
import type { WatchSettings } from '../../watch/settings.ts';
import { startWatching, type Watching } from '../../watch/watcher.ts';
import type { CommandCall } from '../command.ts';
import { recoveryEvent } from '../log/events.ts';
import { confDirOf, runtimeOf } from '../target.ts';
import type { Background, BackgroundParts } from './parts.ts';
import { podEvents } from './pod-events.ts';

/** Starts all of it, with the directories of the command line. */
export function startBackground(
  parts: BackgroundParts,
  settings: Pick<DaemonSettings, 'watch' | 'between'>,
): Background {
  const { call, stateDir, node, pool, observer, callPlugin } = parts;
  const env = { ...call.env, ...directoriesOf(call) };
  const stopRecovering = startRecovering(runtimeOf({ ...call, workers: pool }));
  const upkeeping = new Upkeep({
    ...{ stateDir, boot: bootId(call.env), log: observer.log },
    call: (invocation, signal) => callPlugin(invocation, signal, 0, pool),
    env: { ...env, ...(node ? { [NODE_VARIABLE]: node } : {}) },
  });
  const watching = watchAttachments(parts, withHistory(observer, stateDir, 'daemon'), settings.watch);
  const between = keepBetween(parts, settings.between);
  const following = startFollowing(parts, env);
  return {
    get watch() {
      return watching.state;
    },
    get between() {
      return between.state;
    },
    kept: () => upkeeping.kept + (between.state ? 1 : 0),
    podChanged: (...pod) => following.changed(...pod),
    change(next) {
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
function directoriesOf(call: CommandCall): Record<string, string> {
  const pathOf = (option: string): string => {
    const text = call.text(option);
    return text === undefined ? '' : absolutePath(text, call.cwd);
  };
  const [runs, state] = [pathOf('run-dir'), pathOf('state-dir')];
  return { ...(runs ? { [RUN_DIR_VARIABLE]: runs } : {}), ...(state ? { CATENA_STATE_DIR: state } : {}) };
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
    runDir: absolutePath(call.text('run-dir') ?? runDir(call.env), call.cwd),
    log: observer.log,
    openSource: async ({ nodes = '', kubeconfig }: BetweenSettings, events: NodeEvents) => {
      if (nodes !== KUBERNETES && nodes !== BLOCKS) return openFilesSource(nodes, events);
      const { openKubernetesSource } = await import('../../between/kubernetes-source.ts');
      return openKubernetesSource({ kubeconfig, timeoutMs: ANSWER_MS }, events, { ranges: nodes });
    },
  };
  return startKeeping(parts, settings);
}

/** @param requests told of each repair and each deletion, as of a request */
function watchAttachments(
  { call, pool, observer, calls, isBusy, stateDir: own }: BackgroundParts,
  requests: RequestWatcher,
  settings: WatchSettings,
): Watching {
  // A worker must not wait for a call that itself needs a worker.
  const env = { ...call.env, [SERVED_VARIABLE]: '1' };
  const runtime = { ...runtimeOf({ ...call, env, workers: pool }), stateDir: own };
  const confDir = confDirOf(call);
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
      acted: podEvents({ confDir, env, observer }),
      async traced(verb, { id, known }, how, work, problemOf) {
        const facts = { verb, ...id, netns: known.netns, args: known.args, warm: true };
        const request = requests.begin(facts, env);
        const done = await work({ ...how, ...request.watch, env: request.env });
        const problem = problemOf(done);
        request.end(problem === undefined ? {} : { error: new Error(problem) });
        return done;
      },
    },
    settings,
  );
}
