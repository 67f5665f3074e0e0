// Who wants to know of requests, and how does one that only keeps traces do it?
import type { Runtime } from '../chain/runtime.ts';
import { findTraceParent } from '../chain/trace-context.ts';
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

/** What a chain is to do so that somebody gets to know of it. */
export type Watch = Pick<Runtime, 'onLink' | 'onFinish' | 'onTurn' | 'noted' | 'envOf'>;

/** A request that is watched. */
export interface WatchedRequest extends Pick<OpenRequest, 'id'> {
  /** For the chain: the caller's, below this request's own span where spans are exported. */
  readonly env: Environment;
  /** For the chain, too. */
  readonly watch: Watch;
  /** Hands over all that is known, once; never throws. */
  end(outcome: RequestOutcome): RequestRecord;
}

/** Told of every request when it begins. */
export interface RequestWatcher {
  begin(facts: Omit<RequestFacts, 'span' | 'traceId'>, env: Environment): WatchedRequest;
}

/**
 * Keeps a trace of each request and does nothing else, for commands that run without a daemon.
 * @param onProblem told when a trace cannot be kept
 */
export function openTraceWatcher(dir: string, onProblem: (error: Error) => void): RequestWatcher {
  const ring = new TraceRing(dir);
  return {
    begin(facts, env) {
      const { id, end, ...watch } = startRequest({ ...facts, traceId: findTraceParent(env)?.traceId });
      return {
        id,
        env,
        watch: { ...watch, noted: true },
        end(outcome) {
          const record = end(outcome);
          try {
            ring.write(record);
          } catch (error) {
            onProblem(error as Error);
          }
          return record;
        },
      };
    },
  };
}
