// What does an operator say of logs, traces and spans, and what does it come to?
import { parseLogLevels } from './log-lines.ts';
import { LOG_FILE_LIMITS, parseLogDestination } from './log-output.ts';
import type { ObserverOptions } from './observer.ts';
import { findOtlpOptions } from './otlp.ts';
import { RING_LIMITS } from './trace-ring.ts';

/** As a command line or a file of settings has it. */
export interface ObserveChoices {
  /** `console`, `file:<path>`, `syslog`, `journal`, `none`. */
  readonly log: readonly string[];
  /** `info`, or by link: `info,portmap=debug`. */
  readonly logLevel: string;
  readonly logMaxBytes: number;
  readonly logMaxFiles: number;
  /** Traces that are kept, 0 for none. */
  readonly traces: number;
  readonly traceDir: string;
  /** URL of a collector; otherwise OpenTelemetry's variables tell. */
  readonly otlpEndpoint?: string | undefined;
}

/** What holds where nobody has said anything; the directory of traces is the caller's to say. */
export const OBSERVE_CHOICES: Omit<ObserveChoices, 'traceDir'> = {
  log: ['console'],
  logLevel: '',
  logMaxBytes: LOG_FILE_LIMITS.maxBytes,
  logMaxFiles: LOG_FILE_LIMITS.maxFiles,
  traces: RING_LIMITS.maxRecords,
};

/** All that an observer needs but where its numbers come from. */
export type ObserverChoice = Omit<ObserverOptions, 'sources'>;

/**
 * What choices come to.
 * @throws Error for what cannot be used
 */
export function chooseObserver(
  choices: ObserveChoices,
  env: Readonly<Record<string, string | undefined>>,
): ObserverChoice {
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
