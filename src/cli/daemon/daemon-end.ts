// When and why does the daemon end?
import { notifyServiceManager } from '../../sys/notify.ts';
import { LONGEST_MS } from '../../wait.ts';

/** How the daemon ends. */
export interface End {
  readonly exitCode: number;
  /** What to log; undefined if the end was requested. */
  readonly reason?: string;
}

/** Longest time for requests in progress, if the daemon itself decides to end. */
const FINISH_MS = 60_000;

/** The end of a daemon: after a signal, or because it cannot serve. */
export class DaemonEnd {
  readonly reached: Promise<End>;
  readonly #resolve: (end: End) => void;
  readonly #tell: (reason: string) => void;

  constructor(signal: AbortSignal, tell: (reason: string) => void) {
    const { promise, resolve } = Promise.withResolvers<End>();
    this.reached = promise;
    this.#resolve = resolve;
    this.#tell = tell;
    if (signal.aborted) resolve({ exitCode: 0 });
    signal.addEventListener('abort', () => resolve({ exitCode: 0 }), { once: true });
  }

  /** Ends the daemon; requests in progress may finish. */
  come(exitCode: number, reason: string): void {
    this.#tell(reason);
    this.#resolve({ exitCode, reason });
    // The problem that keeps it from serving may keep it from finishing as well.
    setTimeout(() => process.exit(exitCode), FINISH_MS).unref();
  }
}

/** Number of signs of life in the time after which systemd misses one. */
const SIGNS = 3;

/**
 * Tells the service manager at intervals that the daemon is alive, if it asks for that (`WatchdogSec=`, sd_watchdog_enabled(3)).
 * @returns a function that stops this
 */
export function petWatchdog(env: Readonly<Record<string, string | undefined>>): () => void {
  const { WATCHDOG_USEC, WATCHDOG_PID, NOTIFY_SOCKET } = env;
  const limitMs = Number(WATCHDOG_USEC) / 1_000;
  const isForOther = WATCHDOG_PID !== undefined && Number(WATCHDOG_PID) !== process.pid;
  if (!(limitMs > 0) || isForOther) return () => {};
  const timer = setInterval(
    () => notifyServiceManager('WATCHDOG=1', NOTIFY_SOCKET),
    Math.min(LONGEST_MS, limitMs / SIGNS),
  );
  timer.unref();
  return () => clearInterval(timer);
}
