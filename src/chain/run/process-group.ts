// How do the processes that a plugin has started end together with it?
export { GRACE_MS } from '../../attachments/lock.ts';

/** Sends a signal to the process group of a leader, if a process id is given. A missing group is ignored. */
export function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, signal);
  } catch {
    // The group has no process left.
  }
}
