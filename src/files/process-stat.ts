// In which state is a process, and when did it start?
import { readFileSync, readlinkSync } from 'node:fs';
import { namesIn, tryRead } from './read-file.ts';

/** Fields of /proc/<pid>/stat (man 5 proc). */
interface ProcessStat {
  /** Field 3: `R`, `S`, `D`, `T` (stopped), `Z` (zombie), `X` (dead), … */
  readonly state: string;
  /** Field 4: process id of the parent. */
  readonly parent: number;
  /** Field 5: process id of the leader of its process group. */
  readonly group: number;
  /** Field 22: when it started, in ticks since boot. */
  readonly start: string;
}

/** Undefined if there is no such process. */
export function readProcessStat(pid: number): ProcessStat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may contain any character.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const [state = '', parent, group] = fields;
    return { state, parent: Number(parent), group: Number(group), start: fields[19] ?? '' };
  } catch {
    return undefined;
  }
}

/** The same for a process that still runs: undefined for a zombie, too, which only waits for its parent. */
export function readRunningStat(pid: number): ProcessStat | undefined {
  const stat = readProcessStat(pid);
  return stat === undefined || stat.state === 'Z' || stat.state === 'X' ? undefined : stat;
}

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

/** The kernel reports times to user space in ticks of 10 ms on every machine (USER_HZ). */
const TICK_MS = 10;

/** How long ago a process was started, in milliseconds. */
export function ageMsOf({ start }: Pick<ProcessStat, 'start'>): number {
  return Number(readFileSync('/proc/uptime', 'latin1').split(' ')[0]) * 1000 - Number(start) * TICK_MS;
}

/**
 * When this process was started, in milliseconds since the epoch, and a tick before rather than behind. It may have executed this program
 * long after that: the front waits for a daemon first.
 */
export function startedAt(): number {
  const { start } = thisProcess();
  return start === '' ? performance.timeOrigin : Date.now() - ageMsOf({ start }) - TICK_MS;
}

function ownPidns(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}

/** Names of the processes of this node that have a socket open, as far as this user may look. @param inode of the socket */
export function namesOfHolders(inode: number): string[] {
  return namesIn('/proc')
    .filter(name => /^\d+$/.test(name))
    .flatMap(pid => {
      const dir = `/proc/${pid}/fd`;
      const isHolder = namesIn(dir).some(fd => tryReadLink(`${dir}/${fd}`) === `socket:[${inode}]`);
      return isHolder ? [tryRead(`/proc/${pid}/comm`)?.trim() ?? ''] : [];
    });
}

function tryReadLink(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
