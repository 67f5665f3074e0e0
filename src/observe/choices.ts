// What can an operator configure about logs, traces and spans, and how is that evaluated?
import { parseLogLevels } from './log-lines.ts';
import { LOG_FILE_LIMITS, parseLogDestination } from './log-output.ts';
import type { OutputOptions } from './observer.ts';
import { findOtlpOptions } from './otlp.ts';
import { RING_LIMITS } from './trace-ring.ts';

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
