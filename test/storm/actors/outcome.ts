// How did an action end, and was a failure told as the protocol has it?

import type { Violation } from '../history.ts';
import type { CniResult } from '../model.ts';
import type { Ended } from '../node.ts';

/** How one action ended. */
export interface Outcome {
  /** `skipped`: it no longer applied, in a history that was cut. */
  readonly how: 'ok' | 'failed' | 'killed' | 'skipped';
  readonly result?: CniResult;
  /** What the caller was told, in short. */
  readonly said?: string;
  /** The error says that the undo failed as well. */
  readonly undoFailed?: boolean;
  /** Another process was still at work on the attachment, and the caller is to try again. */
  readonly isBusy?: boolean;
  readonly violations?: readonly Violation[];
}

export const OK: Outcome = { how: 'ok' };
export const SKIPPED: Outcome = { how: 'skipped' };

interface ErrorObject {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
  readonly catena?: { readonly failures?: readonly { readonly verb?: string }[] };
}

/** Nothing ends the worker that serves a living caller: one that another caller's death ends has no work of others. */
const WORKER_ENDED = /worker ended \(|the worker ended before/;

/** @param where the stream that an error object is printed to */
export function judge(what: string, ended: Ended, where: 'stdout' | 'stderr'): Outcome {
  const { exitCode, killed, late, ms } = ended;
  const violation = (rule: string, text: string): Outcome => {
    return {
      how: killed || late ? 'killed' : 'failed',
      violations: [{ rule, text: `${what}: ${text}` }],
      said: text,
    };
  };
  if (late) return violation('late: no answer within the deadline', `nothing after ${ms.toFixed(0)} ms`);
  if (killed) return { how: 'killed' };
  const shown = `exit status ${exitCode}, stdout ${short(ended.stdout)}, stderr ${short(ended.stderr)}`;
  if (exitCode === 0) {
    const result = ended.stdout.trim() === '' ? {} : parse(ended.stdout);
    if (result === undefined) return violation('success: the output is no JSON', shown);
    return { how: 'ok', result: result as CniResult };
  }
  const error = errorIn(ended[where], where);
  if (error === undefined) return violation('failure: no error object', shown);
  if (WORKER_ENDED.test(error.msg))
    return violation('failure: a worker ended that served a living caller', shown);
  const isOfUndo = error.catena?.failures?.some(({ verb }) => verb === 'DEL') ?? false;
  const undoFailed = isOfUndo || (error.details ?? '').includes('undoing it failed too');
  return { how: 'failed', said: `code ${error.code}: ${error.msg}`, undoFailed, isBusy: error.code === 11 };
}

/** On standard error, warnings may stand before it. */
function errorIn(text: string, where: 'stdout' | 'stderr'): ErrorObject | undefined {
  const lines = where === 'stdout' ? [text] : text.trim().split('\n').slice(-1);
  const object = parse(lines[0] ?? '') as Partial<ErrorObject> | undefined;
  const isError = typeof object?.code === 'number' && typeof object.msg === 'string' && object.msg !== '';
  return isError ? (object as ErrorObject) : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function short(text: string): string {
  const line = text.trim().replaceAll(/\s+/g, ' ');
  return line === '' ? 'empty' : JSON.stringify(line.length > 300 ? `${line.slice(0, 300)}…` : line);
}
