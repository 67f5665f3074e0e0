// How does a process end together with its parent?
import { checked, loadLibc } from './libc.ts';

// linux/prctl.h
const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

/**
 * Makes the kernel kill this process when its parent dies (prctl(2), PR_SET_PDEATHSIG). A worker whose daemon was killed must
 * not continue on an attachment that another process may already be deleting.
 */
export function endWithParent(): void {
  const { prctl } = loadLibc<{ prctl(option: number, value: bigint): number }>({
    prctl: { args: ['i32', 'u64'], returns: 'i32' },
  });
  checked(prctl(PR_SET_PDEATHSIG, BigInt(SIGKILL)), () => 'end with the parent process');
}
