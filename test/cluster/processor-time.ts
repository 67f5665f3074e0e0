// How much processor time has a program of a node used so far?

import fs from 'node:fs';
import type { Machine } from '../helpers/machine.ts';

/** Linux counts in hundredths of a second, on every architecture that it tells programs of. */
const MS_PER_TICK = 10;

/** Milliseconds of all processes of a node whose command line contains a text, and of the children that they have waited for. */
export function processorTime({ path }: Machine, text: string): number {
  const proc = path('/proc');
  return fs
    .readdirSync(proc)
    .filter(name => /^\d+$/.test(name))
    .map(pid => [read(`${proc}/${pid}/cmdline`), read(`${proc}/${pid}/stat`)] as const)
    .filter(([line]) => line.replaceAll('\0', ' ').includes(text))
    .reduce((sum, [, stat]) => sum + ticks(stat) * MS_PER_TICK, 0);
}

/** The fields `utime`, `stime`, `cutime` and `cstime` of proc_pid_stat(5). */
function ticks(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
}

function read(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
