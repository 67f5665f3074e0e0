// What is told of requests, and how does a watcher work that only keeps traces?
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { findTraceParent } from '../chain/run/trace-context.ts';
import {
  type OpenRequest,
  type RequestFacts,
  type RequestOutcome,
  type RequestRecord,
  startRequest,
} from './record.ts';
import { TraceRing } from './trace-ring.ts';

/** The environment that a plugin inherits. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The hooks of a chain through which it is watched. */
export type Watch = Pick<ChainRuntime, 'onPlugin' | 'onFinish' | 'onTurn' | 'tracesKernel' | 'envOf'>;

/** A request that is watched. */
export interface WatchedRequest extends Pick<OpenRequest, 'id'> {
  /** The environment for the chain: the caller's, with this request's own span as the parent if spans are exported. */
  readonly env: Environment;
  /** The hooks for the chain. */
  readonly watch: Watch;
  /** Delivers everything that is known, once; never throws. */
  end(outcome: RequestOutcome): RequestRecord;
}

/** Notified at the start of every request. */
export interface RequestWatcher {
  begin(facts: Omit<RequestFacts, 'span' | 'traceId'>, env: Environment): WatchedRequest;
}

/**
 * Only keeps a trace of each request, for commands that run without a daemon.
 * @param onProblem called if a trace cannot be kept
 */
export function openTraceWatcher(dir: string, onProblem: (error: Error) => void): RequestWatcher {
  const ring = new TraceRing(dir);
  return {
    begin(facts, env) {
      const { id, end, ...watch } = startRequest({ ...facts, traceId: findTraceParent(env)?.traceId });
      return {
        id,
        env,
        watch: { ...watch, tracesKernel: true },
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
