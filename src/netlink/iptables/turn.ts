// How do our own changes of iptables' rules wait for each other?
import { withFlock } from '../../sys/flock.ts';
import { ownNetns } from '../../sys/netns.ts';

/** Longest wait for others of ours; the programs themselves wait for everybody else. */
const LOCK_DEADLINE_MS = 30_000;

/**
 * Runs a function while no other call of this link, in this namespace, does: between reading and changing, none of our
 * own may change anything.
 * @param dir where the lock is, made when it is missing
 * @throws Error naming the holder when the wait is over
 */
export function inTurn<T>(dir: string, link: string, work: () => T): T {
  const file = { mode: 0o600, directoryMode: 0o700 };
  return withFlock(`${dir}/${link}-${ownNetns().ino}.lock`, LOCK_DEADLINE_MS, work, file);
}
