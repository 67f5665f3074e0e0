// Which messages do a runner and a worker exchange?
import type { KernelTransaction } from '../chain/run/exec-plugin.ts';
import type { PluginCall, Segment } from '../chain/run/segment.ts';
import type { Reply } from '../cni/invocation.ts';

/**
 * Argument that makes our executable a worker: a process that serves the calls of any of its plugins one after
 * the other, each from a line on standard input with a line on standard output.
 */
export const WORKER_FLAG = '--worker';

/** Further argument of a worker that will serve many chains: compiling its code is worth it. */
export const STAY_FLAG = '--stay';

/** A request to a worker. All but a segment have one reply. */
export type WorkerRequest =
  | { readonly segment: SegmentRequest }
  /** Deletes devices of the host; missing ones are ignored. */
  | { readonly remove: readonly number[] }
  /** Frees memory that calls have left. Sent when no call is waiting. */
  | { readonly rest: true }
  /** Does what the plugins of a chain have deferred. Deletes their devices unless `removed` says that this was done. */
  | { readonly finish: string; readonly removed: boolean; readonly tracesKernel?: boolean | undefined };

/** Consecutive plugins of a chain (chain/run/segment.ts). There is one reply per call made. */
export interface SegmentRequest extends Pick<Segment, 'threadsResult' | 'stopsAtFailure' | 'tracesKernel'> {
  readonly calls: readonly WorkerCall[];
  /** Identifies the run of a chain: what its plugins defer is finished together. */
  readonly chain: string;
}

/** One call of a plugin, by the name of its executable. */
export interface WorkerCall extends Omit<PluginCall, 'path'> {
  readonly plugin: string;
}

/** The reply to a call. Its standard error has the log lines; anything else arrives on the worker's own. */
export interface WorkerReply extends Reply {
  /** Indexes of host devices that must be gone before the deferred work of the chain is done; DEL and GC only. */
  readonly removals?: readonly number[];
  /** The next call of the segment has begun. */
  readonly more?: boolean;
  /** What was done in the kernel, if the request asked for it. */
  readonly transactions?: readonly KernelTransaction[];
}

/**
 * A worker writes this empty line when it has read a request and is about to serve it. If it ends without having written it,
 * another worker may be tried.
 */
export const BEGUN = '\n';

/** A message as a line. JSON escapes all line breaks, so one always ends a message. */
export function toLine(message: WorkerRequest | WorkerReply): string {
  return `${JSON.stringify(message)}\n`;
}
