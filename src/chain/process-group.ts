// How does whatever a plugin has started end together with it?

/** Time between SIGTERM and SIGKILL. */
export const GRACE_MS = 2_000;

/** Sends a signal to a process group, whose leader has that id; undefined when there is none. One that is gone is fine. */
export function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, signal);
  } catch {
    // Nobody of the group is left.
  }
}
