// Which process is this, and is another one still alive?
import { readFileSync, readlinkSync } from 'node:fs';

/** A process, distinguished from a later one with the same number. */
export interface ProcessId {
  readonly pid: number;
  /** When the process started, in ticks since boot, because process ids are reused. Empty if the kernel does not report it. */
  readonly start: string;
  /** The process id namespace in which `pid` is valid. */
  readonly pidns: string;
}

let own: ProcessId | undefined;

/** This process. */
export function thisProcess(): ProcessId {
  own ??= { pid: process.pid, start: findStart(process.pid) ?? '', pidns: ownPidns() };
  return own;
}

/** Whether a process is alive; undefined if it is in another process id namespace, whose processes we cannot see. */
export function isRunning({ pid, start, pidns }: ProcessId): boolean | undefined {
  if (pidns !== thisProcess().pidns) return undefined;
  return start !== '' && findStart(pid) === start;
}

/** Undefined if there is no such process, or it is a zombie. */
function findStart(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may contain any character. (man 5 proc: field 3 is the state, field 22 the start.)
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
