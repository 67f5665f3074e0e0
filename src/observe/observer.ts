// What happens with the facts about a request: log, metrics, traces on disk, spans for a collector?
import { type Enveloped, inEnvelope } from '../answers/envelope.ts';
import { findTraceParent, renderTraceParent, startSpan, startTrace } from '../chain/run/trace-context.ts';
import { LOG_LEVELS, type LogFields, type LogLevel } from '../log.ts';
import { letGoFirst } from '../wait.ts';
import { type LogLevels, linesOf } from './log-lines.ts';
import { type LogDestination, type LogOutput, openLogOutput } from './log-output.ts';
import { type MetricSources, type Metrics, openMetrics } from './metrics.ts';
import { type OtlpExporter, type OtlpOptions, openOtlpExporter } from './otlp.ts';
import { spansOf } from './otlp-span.ts';
import { type RequestRecord, type RequestSpan, startRequest } from './record.ts';
import { findTrace, listTraces, type RingLimits, TraceRing, toRequest } from './trace-ring.ts';
import type { Environment, RequestWatcher } from './watcher.ts';

/** What is enabled. */
export interface ObserverOptions {
  readonly levels: LogLevels;
  readonly destinations: readonly LogDestination[];
  /** Directory of traces; without it none are kept. */
  readonly traceDir?: string | undefined;
  readonly traceLimits?: RingLimits | undefined;
  readonly otlp?: OtlpOptions | undefined;
  readonly sources: Omit<MetricSources, 'dropped'>;
  /** Whether requests are being served, which go first. */
  readonly isBusy?: () => boolean;
}

/** Longest time that what is written lets requests go first. */
const YIELD_MS = 2_000;

/** Lives as long as the daemon. */
export interface Observer extends RequestWatcher {
  /** Recent requests, or the one whose id has this prefix; undefined if there is none. */
  traces(id?: string): Enveloped<'Request'> | Enveloped<'RequestList'> | undefined;
  /**
   * Switches to other options, after delivering everything to the old destinations. Throws and changes nothing if a destination
   * cannot be opened.
   */
  change(options: Omit<ObserverOptions, 'sources' | 'isBusy'>): Promise<void>;
  /** Does work that a client need not wait for, after its answer and those of the requests beside it; at the latest when the observer closes. */
  afterwards(work: () => void): void;
  /** Writes a line that belongs to no request. */
  log(level: LogLevel, message: string, fields?: LogFields): void;
  readonly metrics: Metrics;
  /** Delivers what is pending, within the collector's deadline. */
  close(): Promise<void>;
}

/** Opens the enabled outputs. */
export async function openObserver({
  sources,
  isBusy = () => false,
  ...options
}: ObserverOptions): Promise<Observer> {
  let open = await openPlaces(options);
  let changing = Promise.resolve();
  const lost = { log: 0, spans: 0, traces: 0 };
  const metrics = openMetrics({
    ...sources,
    dropped: () => ({ ...lost, log: lost.log + open.output.dropped, spans: lost.spans + open.unsent() }),
  });

  // The client gets its answer first: writing the records takes as long as a plugin does.
  let late: (() => void)[] = [];
  const afterwards = (work: () => void): void => {
    if (late.push(work) === 1) setImmediate(() => void letGoFirst(isBusy, YIELD_MS).then(doLate));
  };
  const doLate = (): void => {
    const all = late;
    late = [];
    for (const work of all) work();
  };
  const write = (record: RequestRecord): void => {
    const { output, levels, exporter, ring } = open;
    for (const line of linesOf(record, levels)) output.write(line);
    exporter?.add(spansOf(record));
    try {
      ring?.write(record);
    } catch {
      lost.traces += 1;
    }
  };
  // Sets the plugin's own level, so that it does not produce lines that are thrown away here.
  const envOf = (link: string): Record<string, string> => {
    const { links } = open.levels;
    const level = Object.hasOwn(links, link) ? links[link] : undefined;
    return level === undefined ? {} : { CATENA_LOG_LEVEL: level };
  };
  const change = async (next: Omit<ObserverOptions, 'sources' | 'isBusy'>): Promise<void> => {
    doLate();
    const before = open;
    open = await openPlaces(next);
    await before.close();
    lost.log += before.output.dropped;
    lost.spans += before.unsent();
  };

  return {
    begin(facts, env) {
      const span = open.exporter ? spanFor(env) : undefined;
      const traceId = span?.traceId ?? findTraceParent(env)?.traceId;
      const { id, end, ...watch } = startRequest({ ...facts, span, traceId });
      return {
        id,
        env: span === undefined ? env : { ...env, TRACEPARENT: renderTraceParent(span) },
        watch: { ...watch, tracesKernel: open.ring !== undefined || span?.sampled === true, envOf },
        end(outcome) {
          const record = end(outcome);
          metrics.observe(record);
          afterwards(() => write(record));
          return record;
        },
      };
    },
    log(level, message, fields = {}) {
      doLate();
      if (LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(open.levels.level))
        open.output.write({ level, message, fields });
    },
    traces(id) {
      const { traceDir } = open;
      doLate();
      if (traceDir === undefined) return undefined;
      if (id === undefined)
        return inEnvelope('RequestList', { items: listTraces(traceDir).records.map(toRequest) });
      const record = tryTo(() => findTrace(traceDir, id));
      return record && inEnvelope('Request', toRequest(record));
    },
    afterwards,
    metrics,
    change(next) {
      const changed = changing.then(() => change(next));
      changing = changed.catch(() => {});
      return changed;
    },
    async close() {
      await changing;
      doLate();
      await open.close();
    },
  };
}

/** The destinations of records. */
interface Places extends Pick<ObserverOptions, 'levels' | 'traceDir'> {
  readonly output: LogOutput;
  readonly ring: TraceRing | undefined;
  readonly exporter: OtlpExporter | undefined;
  /** Number of spans that no collector accepted. */
  unsent(): number;
  close(): Promise<void>;
}

async function openPlaces({
  levels,
  destinations,
  traceDir,
  traceLimits,
  otlp,
}: Omit<ObserverOptions, 'sources' | 'isBusy'>): Promise<Places> {
  const output = await openLogOutput(destinations);
  const exporter = otlp && openOtlpExporter(otlp);
  return {
    levels,
    output,
    traceDir,
    ring: traceDir === undefined ? undefined : new TraceRing(traceDir, traceLimits),
    exporter,
    unsent: () => exporter?.dropped ?? 0,
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

/** A child of the caller's span, or the first span of a trace. */
function spanFor(env: Environment): RequestSpan {
  const parent = findTraceParent(env);
  return parent ? startSpan(parent) : startTrace();
}
