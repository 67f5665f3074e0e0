// How do the processes that a plugin has started end together with it?

/** Time between SIGTERM and SIGKILL. */
export const GRACE_MS = 2_000;

/** Sends a signal to the process group of a leader, if a process id is given. A missing group is ignored. */
export function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, signal);
  } catch {
    // The group has no process left.
  }
}
