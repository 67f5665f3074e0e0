// What does a daemon's command line say of logs, traces and spans?
import { parseLogLevels } from '../../observe/log-lines.ts';
import { LOG_FILE_LIMITS, parseLogDestination } from '../../observe/log-output.ts';
import type { ObserverOptions } from '../../observe/observer.ts';
import { findOtlpOptions } from '../../observe/otlp.ts';
import { RING_LIMITS } from '../../observe/trace-ring.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { traceDirFor } from '../watched.ts';

/**
 * All but where the numbers come from.
 * @throws UsageError for what cannot be used
 */
export function observerOptionsOf(call: CommandCall): Omit<ObserverOptions, 'sources'> {
  const maxRecords = countOf(call, 'traces', RING_LIMITS.maxRecords, 0);
  const limits = {
    maxBytes: countOf(call, 'log-max-bytes', LOG_FILE_LIMITS.maxBytes),
    maxFiles: countOf(call, 'log-max-files', LOG_FILE_LIMITS.maxFiles),
  };
  const places = call.texts('log');
  return asUsage(() => ({
    levels: parseLogLevels(call.text('log-level') ?? call.env.CATENA_LOG_LEVEL ?? ''),
    destinations: (places.length ? places : ['console'])
      .filter(place => place !== 'none')
      .map(place => parseLogDestination(place, limits)),
    ...(maxRecords === 0 ? {} : { traceDir: traceDirFor(call), traceLimits: { ...RING_LIMITS, maxRecords } }),
    otlp: findOtlpOptions(call.env, call.text('otlp-endpoint')),
  }));
}

/**
 * A whole number of an option.
 * @throws UsageError below the least
 */
export function countOf(call: CommandCall, option: string, fallback: number, least = 1): number {
  const text = call.text(option);
  if (text === undefined) return fallback;
  const count = Number(text);
  if (text.trim() !== '' && Number.isInteger(count) && count >= least) return count;
  throw new UsageError(`Cannot use --${option} "${text}": expected a whole number, ${least} or more`);
}

function asUsage<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new UsageError((cause as Error).message, { cause });
  }
}
