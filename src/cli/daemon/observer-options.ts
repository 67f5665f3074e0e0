// What does a daemon's command line say of logs, traces and spans?
import { chooseObserver, OBSERVE_CHOICES, type ObserveChoices } from '../../observe/choices.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { traceDirFor } from '../watched.ts';

/**
 * What the options say.
 * @throws UsageError for what cannot be used
 */
export function observeChoicesOf(call: CommandCall): ObserveChoices {
  const { log, logMaxBytes, logMaxFiles, traces } = OBSERVE_CHOICES;
  const places = call.texts('log');
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
