// What does a daemon's command line say about logs, traces and spans?
import { absolutePath } from '../../files/read-file.ts';
import { chooseObserver, OBSERVE_CHOICES, type ObserveChoices } from '../../observe/observer.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { traceDirFor } from '../target.ts';

/**
 * The observer's choices, from the options.
 * @throws UsageError for an unusable value
 */
export function observeChoicesOf(call: CommandCall): ObserveChoices {
  const { log, logMaxBytes, logMaxFiles, traces } = OBSERVE_CHOICES;
  // A log file is relative to the directory in which the command was started.
  const places = call.texts('log').map(place => absolute(call, place));
  const choices = {
    log: places.length ? places : log,
    logLevel: call.text('log-level') ?? call.env.CATENA_LOG_LEVEL ?? '',
    logMaxBytes: countOf(call, 'log-max-bytes', logMaxBytes),
    logMaxFiles: countOf(call, 'log-max-files', logMaxFiles),
    traces: countOf(call, 'traces', traces, 0),
    traceDir: traceDirFor(call),
    otlpEndpoint: call.text('otlp-endpoint'),
  };
  try {
    chooseObserver(choices, call.env);
  } catch (cause) {
    throw new UsageError((cause as Error).message, { cause });
  }
  return choices;
}

/**
 * The whole number of an option.
 * @throws UsageError if it is less than the minimum
 */
export function countOf(call: CommandCall, option: string, fallback: number, least = 1): number {
  const text = call.text(option);
  if (text === undefined) return fallback;
  const count = Number(text);
  if (text.trim() !== '' && Number.isInteger(count) && count >= least) return count;
  throw new UsageError(`Cannot use --${option} "${text}": expected a whole number, ${least} or more`);
}

function absolute(call: CommandCall, place: string): string {
  const prefix = 'file:';
  const path = place.startsWith(prefix) ? place.slice(prefix.length) : '';
  return path === '' ? place : `${prefix}${absolutePath(path, call.cwd)}`;
}
