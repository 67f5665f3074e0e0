// What happens with the facts about a request, and what can an operator configure about that?

import { findTraceParent, renderTraceParent, startSpan, startTrace } from '../chain/run/trace-context.ts';
import { type Enveloped, inEnvelope } from '../cli/answers/envelope.ts';
import { attempt } from '../cni/errors.ts';
import { LOG_LEVELS, type LogFields, type LogLevel } from '../log.ts';
import { letGoFirst } from '../wait.ts';
import { noteRequest } from './history.ts';
import {
  LOG_FILE_LIMITS,
  type LogDestination,
  type LogLevels,
  type LogOutput,
  linesOf,
  openLogOutput,
  parseLogDestination,
  parseLogLevels,
} from './log-output.ts';
import { type MetricSources, type Metrics, openMetrics } from './metrics.ts';
import { findOtlpOptions, type OtlpExporter, type OtlpOptions, openOtlpExporter, spansOf } from './otlp.ts';
import { type RecordingWatcher, type RequestRecord, startRequest } from './record.ts';
import { findTrace, listTraces, RING_LIMITS, type RingLimits, TraceRing, toRequest } from './watcher.ts';

export interface OutputOptions {
  readonly levels: LogLevels;
  readonly destinations: readonly LogDestination[];
  /** Directory of traces; without it none are kept. */
  readonly traceDir?: string | undefined;
  readonly traceLimits?: RingLimits | undefined;
  readonly otlp?: OtlpOptions | undefined;
}

export interface ObserverOptions extends OutputOptions {
  readonly sources: Omit<MetricSources, 'dropped'>;
  /** Whose history notes the requests; without it they are not noted. */
  readonly stateDir?: string;
  /** Whether requests are being served, which go first. */
  readonly isBusy?: () => boolean;
}

/** Longest time that what is written lets requests go first. */
const YIELD_MS = 2_000;
/** Writing what a burst of requests has left takes ten times as long. */
const SLICE_MS = 5;

export async function openObserver(options: ObserverOptions): Promise<Observer> {
  return new Observer(options, await openPlaces(options));
}

/** Lives as long as the daemon. */
export class Observer implements RecordingWatcher {
  readonly metrics: Metrics;
  readonly #isBusy: () => boolean;
  readonly #stateDir: string | undefined;
  #lost = { log: 0, spans: 0, traces: 0 };
  #open: Places;
  #changing = Promise.resolve();
  #late: (() => void)[] = [];

  constructor({ sources, stateDir, isBusy = () => false }: ObserverOptions, open: Places) {
    [this.#isBusy, this.#stateDir, this.#open] = [isBusy, stateDir, open];
    this.metrics = openMetrics({ ...sources, dropped: () => addLosses(this.#lost, this.#open) });
  }

  begin(...[facts, env]: Parameters<RecordingWatcher['begin']>): ReturnType<RecordingWatcher['begin']> {
    const { exporter, ring } = this.#open;
    const parent = findTraceParent(env);
    const span = exporter && (parent ? startSpan(parent) : startTrace());
    const traceId = (span ?? parent)?.traceId;
    const { id, end, ...watch } = startRequest({ ...facts, span, traceId });
    const tracesKernel = ring !== undefined || span?.sampled === true;
    return {
      id,
      env: span === undefined ? env : { ...env, TRACEPARENT: renderTraceParent(span) },
      watch: { ...watch, tracesKernel, envOf: plugin => this.#envOf(plugin) },
      end: outcome => {
        const record = end(outcome);
        this.metrics.observe(record);
        this.afterwards(() => this.#write(record));
        const stateDir = this.#stateDir;
        if (stateDir !== undefined)
          this.afterwards(() => noteRequest(stateDir, record, facts.by ?? 'daemon'));
        return record;
      },
    };
  }

  /** Does work that a client need not wait for, after its answer and those of the requests beside it; at the latest when the observer closes. */
  afterwards(work: () => void): void {
    if (this.#late.push(work) > 1) return;
    // The client gets its answer first: writing the records takes as long as a plugin does.
    setImmediate(() => void letGoFirst(this.#isBusy, YIELD_MS).then(() => this.#doSome()));
  }

  /** A part of what waits, after which the requests that came during it have their turn. */
  #doSome(): void {
    const until = performance.now() + SLICE_MS;
    do this.#late.shift()?.();
    while (this.#late.length > 0 && performance.now() < until);
    if (this.#late.length > 0) setImmediate(() => this.#doSome());
  }

  /** Writes a line that belongs to no request. */
  readonly log = (level: LogLevel, message: string, fields: LogFields = {}): void => {
    this.#doLate();
    const { levels, output } = this.#open;
    if (LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(levels.level))
      output.write({ level, message, fields });
  };

  /** Recent requests, or the one whose id has this prefix; undefined if there is none. */
  traces(id?: string): Enveloped<'Request'> | Enveloped<'RequestList'> | undefined {
    const { traceDir } = this.#open;
    this.#doLate();
    if (traceDir === undefined) return undefined;
    if (id === undefined)
      return inEnvelope('RequestList', { items: listTraces(traceDir).records.map(toRequest) });
    return attempt(() => inEnvelope('Request', toRequest(findTrace(traceDir, id))));
  }

  /**
   * Switches to other options, after delivering everything to the old destinations. Throws and changes nothing if a destination
   * cannot be opened.
   */
  change(next: OutputOptions): Promise<void> {
    const changed = this.#changing.then(async () => {
      this.#doLate();
      const before = this.#open;
      this.#open = await openPlaces(next);
      await closePlaces(before);
      this.#lost = addLosses(this.#lost, before);
    });
    this.#changing = changed.catch(() => {});
    return changed;
  }

  /** Delivers what is pending, within the collector's deadline. */
  async close(): Promise<void> {
    await this.#changing;
    this.#doLate();
    await closePlaces(this.#open);
  }

  #doLate(): void {
    const all = this.#late;
    this.#late = [];
    for (const work of all) work();
  }

  #write(record: RequestRecord): void {
    const { output, levels, exporter, ring } = this.#open;
    for (const line of linesOf(record, levels)) output.write(line);
    exporter?.add(spansOf(record));
    try {
      ring?.write(record);
    } catch {
      this.#lost.traces += 1;
    }
  }

  /** Sets the plugin's own level, so that it does not produce lines that are thrown away here. */
  #envOf(plugin: string): Record<string, string> {
    const { plugins } = this.#open.levels;
    const level = Object.hasOwn(plugins, plugin) ? plugins[plugin] : undefined;
    return level === undefined ? {} : { CATENA_LOG_LEVEL: level };
  }
}

interface Places extends Pick<OutputOptions, 'levels' | 'traceDir'> {
  readonly output: LogOutput;
  readonly ring: TraceRing | undefined;
  readonly exporter: OtlpExporter | undefined;
}

async function openPlaces(options: OutputOptions): Promise<Places> {
  const { levels, destinations, traceDir, traceLimits, otlp } = options;
  const output = await openLogOutput(destinations);
  const ring = traceDir === undefined ? undefined : new TraceRing(traceDir, traceLimits);
  return { levels, output, traceDir, ring, exporter: otlp && openOtlpExporter(otlp) };
}

async function closePlaces({ exporter, output }: Places): Promise<void> {
  await exporter?.close();
  await output.close();
}

/** Number of log lines that no destination, and of spans that no collector accepted, with what was lost before. */
function addLosses<T extends { log: number; spans: number }>(lost: T, { output, exporter }: Places): T {
  return { ...lost, log: lost.log + output.dropped, spans: lost.spans + (exporter?.dropped ?? 0) };
}

/** The values from a command line or a settings file. */
export interface ObserveChoices {
  /** `console`, `file:<path>`, `syslog`, `journal`, `none`. */
  readonly log: readonly string[];
  /** `info`, or by plugin: `info,portmap=debug`. */
  readonly logLevel: string;
  readonly logMaxBytes: number;
  readonly logMaxFiles: number;
  /** Maximum number of traces; 0 for none. */
  readonly traces: number;
  readonly traceDir: string;
  /** URL of a collector; by default OpenTelemetry's environment variables apply. */
  readonly otlpEndpoint?: string | undefined;
}

/** Default values; the caller provides the directory of traces. */
export const OBSERVE_CHOICES: Omit<ObserveChoices, 'traceDir'> = {
  log: ['console'],
  logLevel: '',
  logMaxBytes: LOG_FILE_LIMITS.maxBytes,
  logMaxFiles: LOG_FILE_LIMITS.maxFiles,
  traces: RING_LIMITS.maxRecords,
};

/**
 * Evaluates the choices.
 * @throws Error for an unusable value
 */
export function chooseObserver(
  choices: ObserveChoices,
  env: Readonly<Record<string, string | undefined>>,
): OutputOptions {
  const { log, logLevel, logMaxBytes: maxBytes, logMaxFiles: maxFiles, traces, traceDir } = choices;
  return {
    levels: parseLogLevels(logLevel),
    destinations: log
      .filter(place => place !== 'none')
      .map(place => parseLogDestination(place, { maxBytes, maxFiles })),
    ...(traces === 0 ? {} : { traceDir, traceLimits: { ...RING_LIMITS, maxRecords: traces } }),
    otlp: findOtlpOptions(env, choices.otlpEndpoint),
  };
}
