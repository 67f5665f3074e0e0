// Which request to the kernel should fail, to test how a plugin handles that, and which variable says so?

import { writeSync } from 'node:fs';
import { Errno } from './errno.ts';

/**
 * Makes a plugin's executable fail at one request: `CATENA_FAULT=kernel:3` is the third, and `kernel:` with the
 * words of a request are that one, where the order of requests is not always the same. It is honoured everywhere, also for
 * root, because it only simulates what the kernel may do at any time: refuse a request.
 */
export const FAULT_VARIABLE = 'CATENA_FAULT';

/**
 * Called before each request to the kernel, in order.
 * @param what the request, human-readable: `add address 10.1.0.2/24 to link with index 3`
 * @returns the error number with which it should fail; undefined lets it pass
 */
type FaultPlan = (what: string) => number | undefined;

/** The line on standard error by which an executable reports that the fault was injected. */
export const FAULT_NOTE = /^catena: request (\d+) to the kernel was made to fail: (.*)$/m;

let plan: FaultPlan | undefined;
let environmentRead = false;

/**
 * The error number with which this request should fail; nearly always undefined.
 * @param what the request, human-readable; evaluated only if a plan is active
 */
export function faultAt(what: () => string): number | undefined {
  if (!environmentRead) {
    environmentRead = true;
    plan ??= planFrom(process.env[FAULT_VARIABLE]);
  }
  return plan?.(what());
}

/** Activates a plan for this process; undefined ends it. */
export function planFaults(next: FaultPlan | undefined): void {
  environmentRead = true;
  plan = next;
}

function planFrom(text: string | undefined): FaultPlan | undefined {
  const [, wanted] = /^kernel:(.+)$/.exec(text ?? '') ?? [];
  if (wanted === undefined) return undefined;
  const count = requestCounter();
  return what => {
    const { number, repeated } = count(what);
    if (repeated || (number !== Number(wanted) && what !== wanted)) return undefined;
    writeSync(2, `catena: request ${number} to the kernel was made to fail: ${what}\n`);
    return Errno.EIO;
  };
}

/**
 * Numbers requests from 1. A question repeated until the answer changes, such as whether an address is still tentative, counts
 * once: how often it is asked depends on time, and the number of a request must not.
 */
export function requestCounter(): (what: string) => { number: number; repeated: boolean } {
  let number = 0;
  let last: string | undefined;
  return what => {
    const repeated = what === last;
    if (!repeated) number += 1;
    last = what;
    return { number, repeated };
  };
}
