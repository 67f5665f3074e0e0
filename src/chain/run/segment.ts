// In which units does a runner pass plugins to the host that runs them?
//
// A segment is a maximal run of consecutive plugins with one host: our own plugins in one worker, or one foreign executable.
// A runner sends one request per segment and reads a stream of outcomes, one per plugin.
import type { Invocation } from '../../cni/invocation.ts';
import type { FoundPlugin } from '../config/find-plugin.ts';
import type { ExecOutcome } from './exec-plugin.ts';

/** One plugin of a segment. */
export interface PluginCall extends Invocation {
  /** The executable that was found. */
  readonly path: string;
}

/** A request to a {@link SegmentRunner}. */
export interface Segment {
  /** At least one. */
  readonly calls: readonly PluginCall[];
  /** Each call after the first gets the result of the one before as `prevResult` (ADD). */
  readonly threadsResult: boolean;
  /** No call follows a failed one (every verb except DEL and GC). */
  readonly stopsAtFailure: boolean;
  /** Milliseconds that each plugin may take. */
  readonly deadlineMs: number;
  /** When it fires, the running plugin is ended and no other is called. */
  readonly signal?: AbortSignal | undefined;
  /** Outcomes include what plugins did in the kernel, if the runner can tell. */
  readonly tracesKernel?: boolean | undefined;
  /** Called with the position of each call before it can have an effect. */
  onBegin?(position: number): void;
}

/** Runs segments by processes, by workers, or by a function of the caller. */
export interface SegmentRunner {
  /** Whether neighbours for which both this is true may be in one segment. */
  joins(path: string, stat?: FoundPlugin['stat']): boolean;
  /**
   * Yields one outcome for each call, in order, and at least one. It ends early if a call failed in a segment that stops
   * at failures, or if the host of the segment died; the remaining calls were not begun. A caller that leaves the iteration
   * early waits until none of the segment's plugins is running.
   */
  run(segment: Segment): AsyncIterable<ExecOutcome>;
  /**
   * Does what the plugins run so far have deferred to the end of the chain (devices that are deleted together).
   * Undefined if there was nothing; else it counts like a plugin's outcome.
   */
  finish?(): Promise<Omit<ExecOutcome, 'durationMs'> | undefined>;
}

/** Adds the previous plugin's result to a request. Both are JSON objects as text; the request is not empty. */
export function withPrevResult(request: string, result: string): string {
  return `${request.slice(0, -1)},"prevResult":${result}}`;
}
