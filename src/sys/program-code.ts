// How does a process give back the pages of its program that it does not use?
import { FFIType } from 'bun:ffi';
import { readFileSync } from 'node:fs';
import { loadLibc } from './libc.ts';

/** asm-generic/mman-common.h */
const MADV_DONTNEED = 4;

/** The first line of each mapping in proc_pid_smaps(5): addresses, permissions, offset, device, inode, path. */
const HEAD = /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ +(\/.*)$/;

/** What the pages of a mapping hold that the file does not: in memory, and in swap. */
const OWN_PAGES = /^(?:Anonymous|Swap): +[1-9]/m;

/** A range of addresses. */
interface Range {
  readonly start: bigint;
  readonly bytes: bigint;
}

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
  const { madvise } = loadLibc<{ madvise(address: bigint, bytes: bigint, advice: number): number }>({
    madvise: { args: [FFIType.u64, FFIType.u64, FFIType.i32], returns: FFIType.i32 },
  });
  // If the kernel refuses, such as for a mapping locked in memory, nothing is lost.
  for (const { start, bytes } of unchangedRanges(smaps)) madvise(start, bytes, MADV_DONTNEED);
}

/**
 * Private mappings of files that cannot be written, and of which no page differs from the file. Tables that the loader has filled with
 * addresses and then protected do differ.
 * @param smaps content of /proc/<pid>/smaps
 */
export function unchangedRanges(smaps: string): Range[] {
  return smaps.split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/).flatMap(mapping => {
    const [, from = '', to = '', permissions = ''] = HEAD.exec(mapping.split('\n', 1)[0] ?? '') ?? [];
    if (!/^r-[x-]p$/.test(permissions) || OWN_PAGES.test(mapping)) return [];
    const start = BigInt(`0x${from}`);
    return [{ start, bytes: BigInt(`0x${to}`) - start }];
  });
}
