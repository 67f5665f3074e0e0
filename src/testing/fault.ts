// What happens when the kernel refuses a request, and how many requests are there?
import { defined } from '../cni/defined.ts';
import { Errno } from '../sys/errno.ts';
import { FAULT_NOTE, planFaults, requestCounter } from '../sys/fault.ts';

/** The request that was made to fail. */
export interface Fault {
  /** Counted from 1. */
  readonly request: number;
  readonly what: string;
}

/**
 * Runs a function while one of this process's requests to the kernel is made to fail: a netlink request, or setting a
 * sysctl. All other requests are real.
 * @param failAt which one, counted from 1; none when undefined
 */
export async function withFaults<T>(
  failAt: number | undefined,
  run: () => T | Promise<T>,
): Promise<{ value: T; fault?: Fault; requests: readonly string[] }> {
  const requests: string[] = [];
  const count = requestCounter();
  let fault: Fault | undefined;
  planFaults(what => {
    const { number, repeated } = count(what);
    if (repeated) return undefined;
    requests.push(what);
    if (number !== failAt) return undefined;
    fault = { request: failAt, what };
    return Errno.EIO;
  });
  try {
    const value = await run();
    return { value, requests, ...defined({ fault }) };
  } finally {
    planFaults(undefined);
  }
}

/** The requests to the kernel that this process makes while a function runs, human-readable. */
export async function listKernelRequests(run: () => unknown): Promise<readonly string[]> {
  return (await withFaults(undefined, run)).requests;
}

/** The fault that an executable reports on standard error. */
export function faultIn(stderr: string): Fault | undefined {
  const [, request, what = ''] = FAULT_NOTE.exec(stderr) ?? [];
  return request === undefined ? undefined : { request: Number(request), what };
}
