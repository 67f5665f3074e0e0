// Who wants to know of requests, and how does one that only keeps traces do it?
import { findTraceParent } from '../chain/trace-context.ts';
import type { LogLevel } from '../log.ts';
import {
  type OpenRequest,
  type RequestFacts,
  type RequestOutcome,
  type RequestRecord,
  startRequest,
} from './record.ts';
import { TraceRing } from './trace-ring.ts';

/** What a link inherits. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** A request that is watched. */
export interface WatchedRequest extends OpenRequest {
  /** For the chain: the caller's, below this request's own span where spans are exported. */
  readonly env: Environment;
  /** Hands over all that is known, once; never throws. */
  end(outcome: RequestOutcome): RequestRecord;
}

/** Told of every request when it begins. */
export interface RequestWatcher {
  begin(facts: Omit<RequestFacts, 'span' | 'traceId'>, env: Environment): WatchedRequest;
  /** The level at which a link is to log, where that was said of this very link. */
  levelOf(link: string): LogLevel | undefined;
}

/**
 * Keeps a trace of each request and does nothing else, for commands that run without a daemon.
 * @param onProblem told when a trace cannot be kept
 */
export function openTraceWatcher(dir: string, onProblem: (error: Error) => void): RequestWatcher {
  const ring = new TraceRing(dir);
  return {
    begin(facts, env) {
      const request = startRequest({ ...facts, traceId: findTraceParent(env)?.traceId });
      return {
        ...request,
        env,
        end(outcome) {
          const record = request.end(outcome);
          try {
            ring.write(record);
          } catch (error) {
            onProblem(error as Error);
          }
          return record;
        },
      };
    },
    levelOf: () => undefined,
  };
}
