// How are our own changes to iptables rules serialised?
import { LOCK_DEADLINE_MS, withFlock } from '../../sys/flock.ts';
import { ownNetns } from '../../sys/netns.ts';

/**
 * Runs a function while no other call of this plugin runs one in this namespace. Our own processes therefore change nothing
 * between its reads and its changes.
 * @param dir directory of the lock, created if missing
 * @throws Error naming the lock's holder when the wait times out
 */
export function inTurn<T>(dir: string, link: string, work: () => T): T {
  const file = { mode: 0o600, directoryMode: 0o700 };
  return withFlock(`${dir}/${link}-${ownNetns().ino}.lock`, LOCK_DEADLINE_MS, work, file);
}
