// How much memory does a process hold, and for how long did it need a processor?
import { tryRead } from '../files/read-file.ts';

const PAGE_BYTES = 4096;

/** Resident bytes; 0 if the process does not exist. Second column of /proc/<pid>/statm: resident pages. */
export function residentBytes(pid: number | undefined): number {
  return Number(tryRead(`/proc/${pid}/statm`)?.split(' ')[1] ?? 0) * PAGE_BYTES;
}

/**
 * Milliseconds for which a process has run, or waited for a processor to run on (schedstat of its first thread).
 * @returns 0 if the kernel does not say
 */
export function wantedCpuMs(pid: number | undefined): number {
  const [, ran = '0', waited = '0'] = /^(\d+) (\d+)/.exec(tryRead(`/proc/${pid}/schedstat`) ?? '') ?? [];
  return (Number(ran) + Number(waited)) / 1e6;
}
