// Who takes down what is not settled while a daemon runs?
import { recover } from '../../chain/recover.ts';
import type { Runtime } from '../../chain/runtime.ts';
import { runnerJournals } from '../../cni/directories.ts';
import { recoverPods } from '../../delegate/recover.ts';

/** From one look at the journals to the next; what failed waits longer, time and again. */
const INTERVAL_MS = 15_000;

/** Recovery under way. */
export interface Recovering {
  /** Ends it; what is being taken down is let be until its next time. */
  stop(): Promise<void>;
}

/**
 * Takes down what crashes have left, at once, and from then on what is due of what failed: in the journals of the tool, of
 * the delegate runner's pods, and of their networks.
 */
export function startRecovering(runtime: Runtime): Recovering {
  const end = new AbortController();
  const { stateDir = '' } = runtime;
  const { pods, delegates } = runnerJournals(stateDir);
  const signal = runtime.signal ? AbortSignal.any([runtime.signal, end.signal]) : end.signal;
  const own = { ...runtime, signal };
  const round = async (all: boolean): Promise<void> => {
    const scope = { all };
    await recover(scope, own);
    await recoverPods(pods, scope, own);
    await recover(scope, { ...own, stateDir: delegates });
  };
  let running = round(true);
  const timer = setInterval(() => {
    running = running.then(() => round(false));
  }, INTERVAL_MS);
  return {
    async stop() {
      clearInterval(timer);
      end.abort();
      await running;
    },
  };
}
