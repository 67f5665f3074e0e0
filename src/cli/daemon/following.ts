// How does a daemon have pods follow their annotations?
import { runnerJournals } from '../../cni/directories.ts';
import { UPKEEP_VARIABLE } from '../../cni/env.ts';
import { errorIn } from '../../cni/invocation.ts';
import type { WatchedCall } from '../../daemon/backend.ts';
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
      if (answer.declined !== undefined) return answer.error;
      return answer.exitCode === 0 ? undefined : errorIn(answer).message;
    },
  });
}
