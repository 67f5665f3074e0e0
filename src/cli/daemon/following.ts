// How does a daemon have pods follow their annotations?
import { runnerJournals } from '../../cni/directories.ts';
import { UPKEEP_VARIABLE } from '../../cni/env.ts';
import { errorOf, objectIn, type WatchedCall } from '../../daemon/plugin-calls.ts';
import { SERVED_VARIABLE } from '../../daemon/protocol.ts';
import { type FollowedPods, followPods } from '../../delegate/followed-pods.ts';
import type { Observer } from '../../observe/observer.ts';

/** What the following needs of the daemon. */
export interface FollowingParts {
  readonly stateDir: string;
  readonly callRunner: WatchedCall;
  readonly observer: Pick<Observer, 'log'>;
  /** Added to the environment of each call: directories. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Calls the delegate runner again for its pods whose annotation has changed. */
export function startFollowing({ stateDir, callRunner, observer, env }: FollowingParts): FollowedPods {
  const own = { CNI_COMMAND: 'CHECK', [UPKEEP_VARIABLE]: 'due', [SERVED_VARIABLE]: '1' };
  return followPods({
    podsDir: runnerJournals(stateDir).pods,
    log: observer.log,
    async call(follow, signal) {
      const invocation = { env: { ...env, ...follow.env, ...own }, stdin: follow.stdin, cwd: '/' };
      const answer = await callRunner(invocation, signal, 0);
      if ('declined' in answer) return String(answer.error ?? answer.declined);
      return answer.exitCode === 0 ? undefined : errorOf(objectIn(answer.stdout)).message;
    },
  });
}
