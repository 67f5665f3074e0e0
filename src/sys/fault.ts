// Which request to the kernel is to fail, so that somebody can see what a link does then?
import { writeSync } from 'node:fs';
import { Errno } from './errno.ts';
import { FAULT_VARIABLE } from './fault-variable.ts';

/**
 * Asked before each request to the kernel, in the order in which they are made.
 * @param what the request in words: `add address 10.1.0.2/24 to link with index 3`
 * @returns the number of the error with which it is to fail instead; undefined lets it pass
 */
export type FaultPlan = (what: string) => number | undefined;

/** How an executable says on standard error that the fault has happened. */
export const FAULT_NOTE = /^catena: request (\d+) to the kernel was made to fail: (.*)$/m;

let plan: FaultPlan | undefined;
let environmentRead = false;

/**
 * The error number with which this request is to fail; undefined nearly always.
 * @param what the request in words, put together only when somebody wants to know
 */
export function faultAt(what: () => string): number | undefined {
  if (!environmentRead) {
    environmentRead = true;
    plan ??= planFrom(process.env[FAULT_VARIABLE]);
  }
  return plan?.(what());
}

/** Puts a plan in force for this process; undefined ends it. */
export function planFaults(next: FaultPlan | undefined): void {
  environmentRead = true;
  plan = next;
}

function planFrom(text: string | undefined): FaultPlan | undefined {
  const [, wanted] = /^kernel:(\d+)$/.exec(text ?? '') ?? [];
  if (wanted === undefined) return undefined;
  let number = 0;
  return what => {
    number += 1;
    if (number !== Number(wanted)) return undefined;
    writeSync(2, `catena: request ${number} to the kernel was made to fail: ${what}\n`);
    return Errno.EIO;
  };
}
