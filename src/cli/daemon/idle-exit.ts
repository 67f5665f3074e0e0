// When has a daemon been idle for so long that it ends?
import { startTimer, type Timer } from '../../wait.ts';

/** What the daemon is doing. */
export interface Activity {
  readonly running: number;
  readonly queued: number;
  /** Requests answered so far. */
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
