// Who works on an attachment, and does he still live?
import { isRunning, type ProcessId, thisProcess } from '../files/process-id.ts';

/** One operation of one process. */
export interface Runner extends ProcessId {
  /** Tells the operations of one process apart. */
  readonly op: string;
  /** When the operation began. */
  readonly time: string;
}

/** Somebody in another process id namespace counts as alive this long. */
const UNSEEN_MS = 10 * 60_000;

/** Variable by which links know whose they are: they do not end with their runner. */
export const RUNNER_VARIABLE = 'CATENA_RUNNER';

/** The same for a worker, which serves every link of its runner and whatever attachment that works on. */
export const WORKER_VARIABLE = 'CATENA_WORKER_OF';

/** The value of {@link RUNNER_VARIABLE} and {@link WORKER_VARIABLE}: the process of the runner. */
export function processOf({ pid, start }: Pick<Runner, 'pid' | 'start'> = thisProcess()): string {
  return `${pid}-${start}`;
}

/** Begins an operation of this process. It is alive until {@link endRunner}, or until the process ends. */
export function startRunner(): Runner {
  const own = thisProcess();
  count += 1;
  const op = `${processOf(own)}-${count}`;
  active.add(op);
  return { ...own, op, time: new Date().toISOString() };
}

/** Ends an operation of this process. */
export function endRunner({ op }: Runner): void {
  active.delete(op);
}

/** Whether the operation may still be under way. */
export function isAlive({ pid, start, pidns, op, time }: Runner): boolean {
  if (active.has(op)) return true;
  if (pidns === thisProcess().pidns && processOf({ pid, start }) === processOf()) return false;
  return isRunning({ pid, start, pidns }) ?? Math.abs(Date.now() - Date.parse(time)) < UNSEEN_MS;
}

let count = 0;
const active = new Set<string>();
