// Who works on an attachment, and does he still live?
import { readFileSync, readlinkSync } from 'node:fs';

/** One operation of one process. */
export interface Runner {
  readonly pid: number;
  /** When the process started, in ticks since boot: process ids are used again. */
  readonly start: string;
  /** The process id namespace in which `pid` means something. */
  readonly pidns: string;
  /** Tells the operations of one process apart. */
  readonly op: string;
  /** When the operation began. */
  readonly time: string;
}

/** Somebody in another process id namespace counts as alive this long. */
const UNSEEN_MS = 10 * 60_000;

/** Variable by which links know whose they are: they do not end with their runner. */
export const RUNNER_VARIABLE = 'CATENA_RUNNER';

/** The value of {@link RUNNER_VARIABLE}: the process of the runner. */
export function processOf({ pid, start }: Pick<Runner, 'pid' | 'start'> = thisProcess()): string {
  return `${pid}-${start}`;
}

/** Begins an operation of this process. It is alive until {@link endRunner}, or until the process ends. */
export function startRunner(): Runner {
  const process = thisProcess();
  count += 1;
  const op = `${processOf(process)}-${count}`;
  active.add(op);
  return { ...process, op, time: new Date().toISOString() };
}

/** Ends an operation of this process. */
export function endRunner({ op }: Runner): void {
  active.delete(op);
}

/** Whether the operation may still be under way. */
export function isAlive({ pid, start, pidns, op, time }: Runner): boolean {
  if (active.has(op)) return true;
  if (pidns !== ownPidns()) return Math.abs(Date.now() - Date.parse(time)) < UNSEEN_MS;
  if (processOf({ pid, start }) === processOf()) return false;
  return start !== '' && startOf(pid) === start;
}

let own: Pick<Runner, 'pid' | 'start' | 'pidns'> | undefined;
let count = 0;
const active = new Set<string>();

function thisProcess(): Pick<Runner, 'pid' | 'start' | 'pidns'> {
  own ??= { pid: process.pid, start: startOf(process.pid) ?? '', pidns: ownPidns() };
  return own;
}

/** Undefined when there is no such process, or when it has ended and only waits for its parent. */
function startOf(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may hold anything. (man 5 proc: field 3 is the state, field 22 the start.)
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

function ownPidns(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}
