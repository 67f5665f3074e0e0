// Which process is this, and is another one still alive?
import { readlinkSync } from 'node:fs';
import { readRunningStat } from './process-stat.ts';

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
  own ??= { pid: process.pid, start: readRunningStat(process.pid)?.start ?? '', pidns: ownPidns() };
  return own;
}

/** Whether a process is alive; undefined if it is in another process id namespace, whose processes we cannot see. */
export function isRunning({ pid, start, pidns }: ProcessId): boolean | undefined {
  if (pidns !== thisProcess().pidns) return undefined;
  return start !== '' && readRunningStat(pid)?.start === start;
}

function ownPidns(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}
