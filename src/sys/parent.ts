// How does a process end with the one that started it?
import { checked, loadLibc } from './libc.ts';

// linux/prctl.h
const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

/**
 * Has the kernel end this process with its parent (prctl(2), PR_SET_PDEATHSIG): a worker whose daemon was killed must
 * not go on with an attachment that somebody else takes down already.
 */
export function endWithParent(): void {
  const { prctl } = loadLibc<{ prctl(option: number, value: bigint): number }>({
    prctl: { args: ['i32', 'u64'], returns: 'i32' },
  });
  checked(prctl(PR_SET_PDEATHSIG, BigInt(SIGKILL)), () => 'end with the parent process');
}
