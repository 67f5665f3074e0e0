// How does a daemon watch over the attachments of its host?
import { cacheDirOf } from '../../chain/run/runtime.ts';
import { runnerJournals, stateDir } from '../../cni/directories.ts';
import type { WorkerPool } from '../../daemon/pool.ts';
import { SERVED_VARIABLE } from '../../daemon/protocol.ts';
import type { CallsInProgress } from '../../observe/calls-in-progress.ts';
import type { Observer } from '../../observe/observer.ts';
import type { RequestWatcher } from '../../observe/watcher.ts';
import type { WatchSettings } from '../../watch/settings.ts';
import { startWatching, type Watching } from '../../watch/watcher.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf, runtimeOf } from '../target.ts';
import { podEvents } from './pod-events.ts';

/**
 * Starts the watch with the directories of the command line and the workers of the pool.
 * @param requests told of each repair and each deletion, as of a request
 * @param calls that the daemon serves
 */
export function watchAttachments(
  call: CommandCall,
  pool: WorkerPool,
  observer: Observer,
  requests: RequestWatcher,
  calls: CallsInProgress,
  settings: WatchSettings,
): Watching {
  const own = call.text('state-dir') || stateDir(call.env);
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
      isBusy: () => pool.state.waiting > 0 || calls.hasYoung(),
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
