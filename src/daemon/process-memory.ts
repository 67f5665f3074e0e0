// How much memory does a process hold?
import { readFileSync } from 'node:fs';

const PAGE_BYTES = 4096;

/** Resident bytes; 0 if the process does not exist. Second column of /proc/<pid>/statm: resident pages. */
export function residentBytes(pid: number | undefined): number {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * PAGE_BYTES;
  } catch {
    return 0;
  }
}
