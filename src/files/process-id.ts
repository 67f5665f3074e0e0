// Which process are we, and does another one still live?
import { readFileSync, readlinkSync } from 'node:fs';

/** A process, told apart from a later one with the same number. */
export interface ProcessId {
  readonly pid: number;
  /** When the process started, in ticks since boot: process ids are used again. Empty where the kernel does not say. */
  readonly start: string;
  /** The process id namespace in which `pid` means something. */
  readonly pidns: string;
}

let own: ProcessId | undefined;

/** This process. */
export function thisProcess(): ProcessId {
  own ??= { pid: process.pid, start: findStart(process.pid) ?? '', pidns: ownPidns() };
  return own;
}

/** Whether a process lives; undefined for one of another process id namespace, which cannot be seen from here. */
export function isRunning({ pid, start, pidns }: ProcessId): boolean | undefined {
  if (pidns !== thisProcess().pidns) return undefined;
  return start !== '' && findStart(pid) === start;
}

/** Undefined when there is no such process, or when it has ended and only waits for its parent. */
function findStart(pid: number): string | undefined {
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
