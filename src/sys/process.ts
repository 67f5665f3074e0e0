// What does a process arrange for itself: its end with its parent, and what it frees while no request comes?

import { readFileSync } from 'node:fs';
import { checked, lazyLibc } from './libc.ts';

// linux/prctl.h
const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

/**
 * Makes the kernel kill this process when its parent dies (prctl(2), PR_SET_PDEATHSIG). A worker whose daemon was killed must
 * not continue on an attachment that another process may already be deleting.
 */
export function endWithParent(): void {
  const { prctl } = lazyLibc({ prctl: { args: ['i32', 'u64'], returns: 'i32' } })();
  checked(prctl(PR_SET_PDEATHSIG, SIGKILL), () => 'end with the parent process');
}

/** asm-generic/mman-common.h */
const MADV_DONTNEED = 4;

/** The first line of each mapping in proc_pid_smaps(5): addresses, permissions, offset, device, inode, path. */
const HEAD = /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ +(\/.*)$/;

/** What the pages of a mapping hold that the file does not: in memory, and in swap. */
const OWN_PAGES = /^(?:Anonymous|Swap): +[1-9]/m;

const functions = lazyLibc({ madvise: { args: ['u64', 'u64', 'i32'], returns: 'i32' } });

/**
 * Unmaps the pages of the program and its libraries that hold what is in their files (madvise(2), MADV_DONTNEED): the code, and
 * constants without addresses. Starting Bun maps some 20 MiB of them, and a burst of calls twice as much. A page that is used again is
 * mapped again from the page cache, together with its neighbours, which takes a microsecond. The kernel takes memory from pages that
 * are mapped last.
 */
export function releaseProgramCode(): void {
  let smaps: string;
  try {
    smaps = readFileSync('/proc/self/smaps', 'utf8');
  } catch {
    // The kernel was built without it.
    return;
  }
  const { madvise } = functions();
  // If the kernel refuses, such as for a mapping locked in memory, nothing is lost.
  for (const { start, bytes } of unchangedRanges(smaps)) madvise(start, bytes, MADV_DONTNEED);
}

/**
 * Private mappings of files that cannot be written, and of which no page differs from the file. Tables that the loader has filled with
 * addresses and then protected do differ.
 * @param smaps content of /proc/<pid>/smaps
 */
export function unchangedRanges(smaps: string) {
  return smaps.split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/).flatMap(mapping => {
    const [, from = '', to = '', permissions = ''] = HEAD.exec(mapping.split('\n', 1)[0] ?? '') ?? [];
    if (!/^r-[x-]p$/.test(permissions) || OWN_PAGES.test(mapping)) return [];
    const start = BigInt(`0x${from}`);
    return [{ start, bytes: BigInt(`0x${to}`) - start }];
  });
}

/**
 * Frees what calls have left behind, such that the next call costs no more. Discarding compiled code (`Bun.shrink`), or a new process,
 * would free 12 MiB more, and the next call would take twice the processor time.
 */
export function rest(): void {
  Bun.gc(true);
  releaseProgramCode();
}

/** Bun's interface to JavaScriptCore that its types leave out. */
interface UnsafeBun {
  setJITPolicy?(scale: number): void;
}

/**
 * Resets the thresholds of the compiler to normal. Our executable is built with thresholds a hundred times as high, because a
 * plugin's process ends before compiled code has paid for itself.
 */
export function compileEagerly(): void {
  (Bun.unsafe as UnsafeBun).setJITPolicy?.(1);
}
