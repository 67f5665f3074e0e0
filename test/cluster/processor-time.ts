// How much processor time has a program of a node used so far?

import fs from 'node:fs';
import type { Machine } from '../helpers/machine.ts';

/** Linux counts in hundredths of a second, on every architecture that it tells programs of. */
const MS_PER_TICK = 10;

/**
 * Milliseconds of all processes of a node whose command line contains a text, of their descendants, which may be called otherwise (a daemon's
 * workers are), and of the children that any of them have waited for.
 */
export function processorTime({ path }: Machine, text: string): number {
  const proc = path('/proc');
  const all = fs
    .readdirSync(proc)
    .filter(name => /^\d+$/.test(name))
    .map(pid => ({
      pid,
      line: read(`${proc}/${pid}/cmdline`),
      fields: fieldsOf(read(`${proc}/${pid}/stat`)),
    }));
  const counted = new Set(
    all.filter(({ line }) => line.replaceAll('\0', ' ').includes(text)).map(({ pid }) => pid),
  );
  for (let before = -1; before < counted.size; ) {
    before = counted.size;
    for (const { pid, fields } of all) if (counted.has(fields[1] ?? '')) counted.add(pid);
  }
  return all
    .filter(({ pid }) => counted.has(pid))
    .reduce((sum, { fields }) => sum + ticks(fields) * MS_PER_TICK, 0);
}

/** The fields of proc_pid_stat(5) from the third, the state, on. */
function fieldsOf(stat: string): string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** `utime`, `stime`, `cutime` and `cstime`. */
function ticks(fields: readonly string[]): number {
  return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
}

function read(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
