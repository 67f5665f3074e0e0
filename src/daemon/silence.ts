// What does a client do about a daemon that shows no sign of life?
//
// Loaded only if a daemon is silent or gone: most starts of a plugin never get here (see client.ts).

import { endFrozen, isFrozen } from '../files/frozen-process.ts';
import { type CallFate, giveUp } from './calls-file.ts';

/**
 * `declined`: the daemon has not begun the call and never will. `lost`: it may have begun the call and will not continue it.
 * `wait`: it may be working on it.
 */
export type Verdict = 'declined' | 'lost' | 'wait';

/** A daemon that runs but is silent for this long hangs. */
const STANDSTILL_MS = 10_000;

/**
 * Decides about a call whose daemon is silent. A daemon that has begun the call and is stopped is killed, together with its
 * workers: nothing else prevents it from continuing the call later, while the client makes it itself.
 * @param file the calls file of the socket
 * @param silentMs how long it has been silent
 */
export async function judgeSilence(file: string, key: string, silentMs: number): Promise<Verdict> {
  const fate = giveUp(file, key);
  if (fate === undefined) return 'wait';
  if (!fate.begun) return 'declined';
  const { daemon } = fate;
  if (silentMs < STANDSTILL_MS && !(await isFrozen(daemon))) return 'wait';
  return (await endFrozen(daemon)) ? 'lost' : 'wait';
}

/** Decides about a call whose connection to the daemon broke. */
export function judgeBreak(file: string, key: string): Verdict {
  const fate: CallFate | undefined = giveUp(file, key);
  return fate?.begun === false ? 'declined' : 'lost';
}
