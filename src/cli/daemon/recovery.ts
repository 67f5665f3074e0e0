// How are unsettled attachments undone while a daemon runs?
import { recover } from '../../chain/records/recover.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { runnerJournals } from '../../cni/directories.ts';
import { recoverPods } from '../../delegate/recover.ts';
import { appendHistory } from '../../observe/history.ts';
import { recoveryEvent } from '../log/events.ts';

/** Interval between two looks at the journals; after a failure, an attachment waits longer each time. */
const INTERVAL_MS = 15_000;

/** Rounds at the same time. */
const AT_ONCE = 4;

/** A recovery that runs in the background. */
export interface Recovering {
  /** Stops it; an attachment that is just being undone is left until the next recovery. */
  stop(): Promise<void>;
}

/**
 * Undoes what crashes have left behind, at once and then at intervals, with retries of what failed. It covers the journals of the
 * tool, of the delegate runner's pods, and of their networks.
 */
export function startRecovering(runtime: Runtime): Recovering {
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
  return {
    async stop() {
      clearInterval(timer);
      end.abort();
      await Promise.all(rounds);
    },
  };
}
