// Which attachments of a node are not as their ADD left them, and what mends each?
import { listUses } from '../chain/config/plugin-uses.ts';
import { findConfigOfAdd } from '../chain/records/known-add.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { SegmentRunner } from '../chain/run/segment.ts';
import { visitAll } from '../chain/run/visits.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { defined } from '../cni/json.ts';
import { timeLimit } from '../wait.ts';
import type { WatchedAttachment } from './attachments.ts';
import { deviceNames } from './collect-gone.ts';
import { examine, mendFor } from './examine.ts';

/** The condition of one attachment. */
export interface AttachmentCheck extends AttachmentId {
  /** `unknown`: no CHECK could be run. */
  readonly state: 'sound' | 'broken' | 'unknown';
  /** What CHECK reported, or why it could not be run. */
  readonly problem?: string;
  /** Its list has no CHECK, so nothing but another list would change that it is unknown. */
  readonly unchecked?: true;
  /** The time for checks was over: more time would tell. */
  readonly late?: true;
  /** The command that mends it, or the sentence that says that only its runtime can; of a broken one. */
  readonly mend?: string;
}

/** Which attachments are checked, and how. */
export interface CheckScope {
  /** Those with a plugin of this type; by default all but those that are checked in parts. */
  readonly type?: string;
  /** All CHECKs end by then, in milliseconds: a node may have hundreds of attachments, and a plugin may hang. */
  readonly budgetMs?: number;
  /** Makes what runs one chain at a time, so that several are checked at once. */
  readonly openSegments?: (() => SegmentRunner) | undefined;
}

/** For a command that a person waits for. */
export const CHECK_BUDGET_MS = 10_000;
/** A CHECK waits for the kernel more than it computes; each of them has a worker. One that takes long gives its turn to another. */
const AT_ONCE = 4;
/** What seems broken may be in a DEL of a runtime that keeps no record here. No person waits longer for that. */
const MOST_REST_MS = 300;

/**
 * Runs CHECK of attachments, with the configuration of the ADD of each. Leaves out those whose namespace is gone, those that a process
 * works on, and those deleted during that; once the time is over, the remaining ones are `unknown`.
 */
export async function checkAll(
  attachments: readonly WatchedAttachment[],
  runtime: ChainRuntime,
  { type, budgetMs, openSegments }: CheckScope,
): Promise<AttachmentCheck[]> {
  const { onPlugin: _, onWarning: __, ...quiet } = runtime;
  const signals = [
    ...(runtime.signal ? [runtime.signal] : []),
    ...(budgetMs === undefined ? [] : [timeLimit(budgetMs)]),
  ];
  const own = { ...quiet, signal: AbortSignal.any(signals), ...defined({ deadlineMs: budgetMs }) };
  const chosen = attachments.filter(one =>
    type === undefined ? !one.isCheckedInParts : hasPlugin(one, type, quiet),
  );
  const idle: SegmentRunner[] = [];
  const present = deviceNames();
  // One runner serves one chain at a time.
  const atOnce = openSegments || !runtime.segments ? AT_ONCE : 1;
  const limits = { atOnce, groupOf: ({ id }: WatchedAttachment) => id.network };
  const checks = await visitAll(chosen, limits, async (one, rest): Promise<AttachmentCheck[]> => {
    if (own.signal.aborted) return [{ ...one.id, state: 'unknown', problem: UNREACHED, late: true }];
    const segments = idle.pop() ?? openSegments?.();
    const resting = (ms: number) => rest(Math.min(ms, MOST_REST_MS));
    const outcome = await examine(one, { ...own, ...defined({ segments }) }, resting);
    if (segments) idle.push(segments);
    const { state } = outcome;
    if (state === 'sound') return [{ ...one.id, state }];
    if (state === 'drifted')
      return [{ ...one.id, state: 'broken', problem: outcome.problem, mend: mendFor(one, [...present()]) }];
    if (own.signal.aborted) return [{ ...one.id, state: 'unknown', problem: UNANSWERED, late: true }];
    if (state !== 'unknown') return [];
    return [{ ...one.id, state, problem: outcome.why, ...defined({ unchecked: outcome.unchecked }) }];
  });
  return checks.flat();
}

const UNREACHED = 'the time for checks was over before its turn came';
const UNANSWERED = 'its CHECK did not answer in the time for checks';

/** Also as its IPAM plugin, or as one that another calls. */
function hasPlugin({ known }: WatchedAttachment, type: string, runtime: ChainRuntime): boolean {
  const list = findConfigOfAdd(known, runtime);
  return list !== undefined && listUses(list).some(use => use.type === type);
}
