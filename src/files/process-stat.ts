// In which state is a process, and when did it start?
import { readFileSync } from 'node:fs';

/** Fields of /proc/<pid>/stat (man 5 proc). */
export interface ProcessStat {
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
