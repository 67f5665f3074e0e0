// When and why does the daemon end: after a signal, because it cannot serve, or since it was idle for long?
import { notifyServiceManager } from '../../sys/service-manager.ts';
import { LONGEST_MS, startTimer, type Timer } from '../../wait.ts';

interface End {
  readonly exitCode: number;
  /** What to log; undefined if the end was requested. */
  readonly reason?: string;
}

/** Longest time for requests in progress. */
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
    if (signal.aborted) this.#begin({ exitCode: 0 });
    signal.addEventListener('abort', () => this.#begin({ exitCode: 0 }), { once: true });
  }

  /** Ends the daemon; requests in progress may finish. */
  come(exitCode: number, reason: string): void {
    this.#tell(reason);
    this.#begin({ exitCode, reason });
  }

  #begin(end: End): void {
    this.#resolve(end);
    // The problem that keeps it from serving may keep it from finishing as well, and a plugin may hang.
    setTimeout(() => process.exit(end.exitCode), FINISH_MS).unref();
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

export interface Activity {
  readonly running: number;
  readonly queued: number;
  readonly served: number;
  /** Connections of clients that may be about to send a call. */
  readonly connections: number;
  /** Attachments for which a plugin must be called again, such as those with a DHCP lease. */
  readonly kept: number;
  /** Calls that it declined, and that another daemon in its place could have served. */
  readonly passedBy: number;
}

/** Several times in the shortest idle time, and at least every second. */
const LOOKS = 4;
const LOOK_EVERY_MS = 1_000;

/**
 * Calls `end` once no request has run for a time, no client is connected, and no attachment has to be kept; or
 * once it served nothing for that time, and calls came that only another daemon could serve, which then keeps the attachments. Reading the daemon's state or metrics and pings are no
 * requests: a probe must not keep the daemon alive.
 * @param limitMs that time; undefined: the daemon stays. Settings may change it
 * @returns a function that stops watching
 */
export function watchIdle(
  activity: () => Activity,
  limitMs: () => number | undefined,
  end: (idleMs: number) => void,
): () => void {
  let since = performance.now();
  let workedAt = since;
  let { served, passedBy } = activity();
  let timer: Timer | undefined;
  const look = (): void => {
    const now = performance.now();
    const limit = limitMs();
    const found = activity();
    if (found.running > 0 || found.queued > 0 || found.served !== served) {
      workedAt = now;
      ({ served, passedBy } = found);
    }
    if (found.kept > 0 || workedAt === now) since = now;
    const isIdle = limit !== undefined && now - since >= limit && found.connections === 0;
    const isInTheWay = limit !== undefined && now - workedAt >= limit && found.passedBy > passedBy;
    if (isIdle || isInTheWay) end(now - workedAt);
    else again();
  };
  const again = (): void => {
    timer = startTimer(look, Math.min(LOOK_EVERY_MS, (limitMs() ?? LOOK_EVERY_MS * LOOKS) / LOOKS));
    timer.unref();
  };
  again();
  return () => clearTimeout(timer);
}
