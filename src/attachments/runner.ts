// Which process is working on an attachment, and is it still alive?
import { isRunning, type ProcessId, thisProcess } from '../files/process-stat.ts';

/** One operation of one runner. */
export interface Runner extends ProcessId {
  /** Distinguishes the operations of one process. */
  readonly op: string;
  /** When the operation began. */
  readonly time: string;
  /** Milliseconds after which it ends a plugin; {@link PLUGIN_DEADLINE_MS} if the record does not say. */
  readonly deadlineMs?: number;
}

/** Time for a plugin to run, unless its runner sets another. */
export const PLUGIN_DEADLINE_MS = 60_000;

/** A process in another process id namespace counts as alive this long. */
const UNSEEN_MS = 10 * 60_000;

/** Variable that marks plugins with their runner: they do not end with it. */
export const RUNNER_VARIABLE = 'CATENA_RUNNER';

/** The same for a worker, which serves all plugin calls of its runner, for any attachment. */
export const WORKER_VARIABLE = 'CATENA_WORKER_OF';

/** The value of {@link RUNNER_VARIABLE} and {@link WORKER_VARIABLE}: the process of the runner. */
export function processOf({ pid, start }: Pick<Runner, 'pid' | 'start'> = thisProcess()): string {
  return `${pid}-${start}`;
}

/**
 * Begins an operation of this process. It is alive until {@link endRunner}, or until the process ends.
 * @param deadlineMs milliseconds after which it ends a plugin
 */
export function startRunner(deadlineMs?: number): Runner {
  const own = thisProcess();
  count += 1;
  const op = `${processOf(own)}-${count}`;
  active.add(op);
  const time = new Date().toISOString();
  return { ...own, op, time, ...(deadlineMs === undefined ? {} : { deadlineMs }) };
}

/** Ends an operation of this process. */
export function endRunner({ op }: Runner): void {
  active.delete(op);
}

/** Whether the operation may still be running. */
export function isAlive({ pid, start, pidns, op, time }: Runner): boolean {
  if (active.has(op)) return true;
  if (pidns === thisProcess().pidns && processOf({ pid, start }) === processOf()) return false;
  return isRunning({ pid, start, pidns }) ?? Math.abs(Date.now() - Date.parse(time)) < UNSEEN_MS;
}

/**
 * The living operation that a record names as not ended. A lock (lock.ts) says the same and more, but the run directory may have been
 * lost, and who only reads need not look there.
 */
export function holderOf({ runners }: { readonly runners: readonly Runner[] }): Runner | undefined {
  return runners.find(isAlive);
}

let count = 0;
const active = new Set<string>();
