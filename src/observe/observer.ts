// What happens with all that is learned of a request: log, metrics, traces on disk, spans for a collector?
import { findTraceParent, renderTraceParent, startSpan, startTrace } from '../chain/trace-context.ts';
import { LOG_LEVELS, type LogFields, type LogLevel } from '../log.ts';
import { type LogLevels, linesOf } from './log-lines.ts';
import { type LogDestination, openLogOutput } from './log-output.ts';
import { type MetricSources, type Metrics, openMetrics } from './metrics.ts';
import { type OtlpOptions, openOtlpExporter } from './otlp.ts';
import { spansOf } from './otlp-span.ts';
import { type RequestRecord, type RequestSpan, startRequest } from './record.ts';
import { findTrace, listTraces, type RingLimits, TraceRing } from './trace-ring.ts';
import type { Environment, RequestWatcher } from './watcher.ts';

/** Which of it is wanted. */
export interface ObserverOptions {
  readonly levels: LogLevels;
  readonly destinations: readonly LogDestination[];
  /** Directory of traces; none are kept without one. */
  readonly traceDir?: string | undefined;
  readonly traceLimits?: RingLimits | undefined;
  readonly otlp?: OtlpOptions | undefined;
  readonly sources: Omit<MetricSources, 'dropped'>;
}

/** One for the life of a daemon. */
export interface Observer extends RequestWatcher {
  /** Recent requests, or the one whose id begins like this; undefined when there is none. */
  traces(id?: string): object | undefined;
  /** A line that belongs to no request. */
  log(level: LogLevel, message: string, fields?: LogFields): void;
  readonly metrics: Metrics;
  /** Hands over what waits, within the collector's deadline. */
  close(): Promise<void>;
}

/** Opens what is wanted. */
export async function openObserver(options: ObserverOptions): Promise<Observer> {
  const { levels, traceDir, traceLimits, sources } = options;
  const output = await openLogOutput(options.destinations);
  const ring = traceDir === undefined ? undefined : new TraceRing(traceDir, traceLimits);
  const exporter = options.otlp && openOtlpExporter(options.otlp);
  let lostTraces = 0;
  const metrics = openMetrics({
    ...sources,
    dropped: () => ({ log: output.dropped, spans: exporter?.dropped ?? 0, traces: lostTraces }),
  });

  const handOver = (record: RequestRecord): void => {
    metrics.observe(record);
    for (const line of linesOf(record, levels)) output.write(line);
    exporter?.add(spansOf(record));
    try {
      ring?.write(record);
    } catch {
      lostTraces += 1;
    }
  };

  // A link writes what it is asked to, so that nothing is made that is thrown away here.
  const envOf = (link: string): Record<string, string> => {
    const level = Object.hasOwn(levels.links, link) ? levels.links[link] : undefined;
    return level === undefined ? {} : { CATENA_LOG_LEVEL: level };
  };

  return {
    begin(facts, env) {
      const span = exporter ? spanFor(env) : undefined;
      const traceId = span?.traceId ?? findTraceParent(env)?.traceId;
      const { id, end, ...watch } = startRequest({ ...facts, span, traceId });
      return {
        id,
        env: span === undefined ? env : { ...env, TRACEPARENT: renderTraceParent(span) },
        watch: { ...watch, noted: ring !== undefined || span?.sampled === true, envOf },
        end(outcome) {
          const record = end(outcome);
          handOver(record);
          return record;
        },
      };
    },
    log(level, message, fields = {}) {
      if (LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(levels.level))
        output.write({ level, message, fields });
    },
    traces(id) {
      if (traceDir === undefined) return undefined;
      return id === undefined ? listTraces(traceDir).records : tryTo(() => findTrace(traceDir, id));
    },
    metrics,
    async close() {
      await exporter?.close();
      await output.close();
    },
  };
}

function tryTo<T>(find: () => T): T | undefined {
  try {
    return find();
  } catch {
    return undefined;
  }
}

/** Below the caller's span, or the first of a trace. */
function spanFor(env: Environment): RequestSpan {
  const parent = findTraceParent(env);
  return parent ? startSpan(parent) : startTrace();
}
