// How does systemd notice that the daemon hangs?

import { notifyServiceManager } from '../../sys/notify.ts';
import { LONGEST_MS } from '../../wait.ts';

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
