// How does CHECK of every attachment of a node end in time?
import { type AttachmentCheck, checkAttachments } from '../chain/records/check-attachments.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { SegmentRunner } from '../chain/run/segment.ts';
import { RequestLimiter } from '../daemon/request-limiter.ts';

/** All CHECKs end by then: a node may have hundreds of attachments, and a plugin may hang. */
const BUDGET_MS = 10_000;
/** A CHECK waits for the kernel more than it computes; each of them has a worker. One that takes long gives its turn to another. */
const AT_ONCE = 4;

/**
 * Checks every existing attachment, whichever runtime made it, with the configuration of its ADD; those that a hung one holds up are
 * `unknown`.
 * @param journals state directories besides the runtime's own
 * @param openSegments makes what runs one chain at a time; undefined for a process per plugin
 * @throws CniError 5 when cache or journal cannot be listed
 */
export function checkAll(
  journals: readonly string[],
  runtime: ChainRuntime,
  openSegments: (() => SegmentRunner) | undefined,
): Promise<AttachmentCheck[]> {
  const signal = AbortSignal.any([
    AbortSignal.timeout(BUDGET_MS),
    ...(runtime.signal === undefined ? [] : [runtime.signal]),
  ]);
  const turns = new RequestLimiter({ requests: AT_ONCE, queue: Infinity, bytes: 0 }, BUDGET_MS);
  const options = openSegments === undefined ? { turns } : { turns, openSegments };
  return checkAttachments(undefined, journals, { ...runtime, deadlineMs: BUDGET_MS, signal }, options);
}
