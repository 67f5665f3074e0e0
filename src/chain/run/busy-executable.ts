// What if an executable was written a moment ago?
//
// A file just written may still be open for writing, for a moment, in a process forked at the same time: execve(2) fails with
// ETXTBSY.
import { pause } from '../../wait.ts';

const RETRY_MS = [10, 50, 100, 250, 500, 1000, 1000];

/**
 * Runs an executable, again while it is busy.
 * @param attempt runs it once, within what is left of the deadline
 * @returns the last outcome, with the time since the first attempt
 */
export async function retryWhileBusy<T extends { readonly spawnError?: string }>(
  attempt: (leftMs: number) => Promise<T>,
  deadlineMs: number,
): Promise<T & { readonly durationMs: number }> {
  const started = performance.now();
  const elapsed = () => performance.now() - started;
  for (const waitMs of RETRY_MS) {
    const outcome = await attempt(deadlineMs - elapsed());
    const isBusy = outcome.spawnError?.startsWith('ETXTBSY') ?? false;
    if (!isBusy || elapsed() + waitMs > deadlineMs) return { ...outcome, durationMs: elapsed() };
    await pause(waitMs);
  }
  return { ...(await attempt(deadlineMs - elapsed())), durationMs: elapsed() };
}
