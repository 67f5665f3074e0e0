// How does a verb interpret the outcome of a plugin's call, and how do several failures of a chain become one error?

import type { Command } from '../../cni/env.ts';
import { type CalledPlugin, CniError, describeError, ErrorCode, toCniError } from '../../cni/errors.ts';
import { failureOf, parseReply } from '../../cni/invocation.ts';
import { defined, isObject, type JsonObject } from '../../cni/json.ts';
import type { SpecVersion } from '../../cni/result.ts';
import { convertResult, resultVersionOf } from '../../cni/result.ts';
import type { ExecOutcome } from './exec-plugin.ts';
import { type ChainRuntime, deadlineOf, type PluginEvent } from './runtime.ts';
import type { PluginSpan } from './trace-context.ts';

/** The same error with more details; code, message and plugin stay. */
export function withDetails(error: unknown, details: string, causes: readonly unknown[] = []): unknown {
  if (!(error instanceof CniError)) return new Error(details, { cause: error });
  return new CniError(error.code, error.message, {
    details: [error.details, details].filter(Boolean).join('; '),
    cause: causes.length ? new AggregateError([error, ...causes]) : error,
    ...defined({ plugin: error.plugin }),
  });
}

/** Errors that a message tells; the rest is in its details. */
const MOST_TOLD = 5;

/** One error for several: a single one unchanged, else one with the first one's code that tells them. */
export function joinErrors(what: string, errors: readonly unknown[]): unknown {
  const [first] = errors;
  if (errors.length === 1) return first;
  const all = errors.map(describePluginError);
  const rest = all.slice(MOST_TOLD);
  const more = rest.length ? ` and ${rest.length} more` : '';
  return new CniError(toCniError(first).code, `${what}: ${all.slice(0, MOST_TOLD).join('; ')}${more}`, {
    ...(rest.length ? { details: rest.join('; ') } : {}),
    cause: new AggregateError(errors),
  });
}

/** An error in one sentence that names its plugin. */
export function describePluginError(error: unknown): string {
  const plugin = error instanceof CniError ? error.plugin : undefined;
  const text =
    error instanceof CniError && error.details ? `${error.message} (${error.details})` : describeError(error);
  return plugin === undefined ? text : `${plugin.type} ${plugin.verb}: ${text}`;
}

/**
 * Checks what a plugin printed on ADD and converts it to the version of its list; unknown keys stay. The next plugin and the
 * caller then deal with one version only, while the reference passes on whatever it gets. The error names the plugin that
 * printed the result, not the one that would have failed on it.
 * @throws CniError 6 (no result, or a value of the wrong shape, with its path), 1 (a version that does not exist),
 *   7 (addresses that the list's version demands are missing)
 */
export function acceptResult(stdout: string, version: SpecVersion, plugin: CalledPlugin): JsonObject {
  const printed = parseReply(stdout, plugin);
  const what = `result of plugin "${plugin.type}"`;
  if (printed === undefined) {
    throw new CniError(
      ErrorCode.decodingFailure,
      `Cannot decode output of plugin "${plugin.type}": it printed no result`,
      { plugin },
    );
  }
  try {
    return convertResult({ ...printed, cniVersion: resultVersionOf(printed, version, what) }, version, what);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, error.message, {
      cause: error,
      ...defined({ details: error.details }),
      plugin,
    });
  }
}

/** Reads a successful plugin's standard output for a verb; throws if it is not what the verb prints. */
export type ReadReply<Reply> = (stdout: string, plugin: CalledPlugin) => Reply;

/** CHECK, DEL, GC and STATUS print nothing; anything they do print is ignored (SPEC "CNI operations"). */
export const IGNORED: ReadReply<undefined> = () => undefined;

/** Bytes of standard error that go into an error. */
const STDERR_TAIL = 4096;

/** The call that an outcome belongs to. */
export interface MadeCall {
  readonly plugin: CalledPlugin;
  readonly path: string;
  readonly span: PluginSpan | undefined;
}

/**
 * Reports the outcome to the caller's listeners.
 * @returns the plugin's output as read by `read`
 * @throws CniError with the plugin's name, index and how its process ended
 */
export function conclude<Reply>(
  outcome: ExecOutcome,
  { plugin: called, path, span }: MadeCall,
  runtime: ChainRuntime,
  read: ReadReply<Reply>,
): Reply {
  const { exitCode, signal, durationMs, stderr, ended, transactions } = outcome;
  const verb = called.verb as Command;
  const plugin: CalledPlugin = {
    ...called,
    executable: path,
    durationMs,
    ...defined({ exitCode, signal, ended }),
    ...(stderr === '' ? {} : { stderr: stderr.slice(-STDERR_TAIL) }),
  };
  const { network, index } = called;
  const place = { network, plugin: called.type, index, executable: path, verb, ...defined({ span }) };
  const event = { ...place, durationMs, stderr, ...defined({ transactions }) };
  let reply: Reply;
  try {
    const error = findFailure(outcome, plugin, deadlineOf(runtime, verb));
    if (error) throw outcome.again ? tryAgain(error) : error;
    reply = read(outcome.stdout, plugin);
  } catch (error) {
    if (error instanceof CniError) tell(runtime, { ...event, error });
    throw error;
  }
  tell(runtime, { ...event, ...(verb === 'ADD' && isObject(reply) ? { result: reply } : {}) });
  return reply;
}

/** An observer that fails is no reason to undo what the plugin did. */
function tell(runtime: ChainRuntime, event: PluginEvent): void {
  try {
    runtime.onPlugin?.(event);
  } catch (thrown) {
    runtime.onWarning?.(
      new CniError(ErrorCode.internal, `Cannot report plugin "${event.plugin}": onPlugin failed`, {
        cause: thrown,
      }),
    );
  }
}

function findFailure(outcome: ExecOutcome, plugin: CalledPlugin, deadlineMs: number): CniError | undefined {
  const type = JSON.stringify(plugin.type);
  if (outcome.spawnError !== undefined) {
    return new CniError(ErrorCode.unknown, `Cannot start plugin ${type}: ${outcome.spawnError}`, {
      details: plugin.executable ?? '',
      plugin,
    });
  }
  if (outcome.ended === 'deadline') {
    const text = `Plugin ${type} did not finish within ${deadlineMs / 1000} s: its process group was killed`;
    return new CniError(ErrorCode.unknown, text, { plugin });
  }
  if (outcome.ended === 'output') {
    return new CniError(ErrorCode.unknown, `Plugin ${type} printed more than 16 MiB: it was killed`, {
      plugin,
    });
  }
  if (outcome.ended === 'interrupt') return interrupted(plugin);
  return outcome.exitCode === 0 ? undefined : failureOf(outcome, plugin);
}

/** The same text with the code that makes a runtime try again. */
function tryAgain({ message, details, plugin }: CniError): CniError {
  return new CniError(ErrorCode.tryAgainLater, message, defined({ details, plugin }));
}

/** The error of a plugin that was not called, or was ended, because the caller interrupted the verb. */
export function interrupted(plugin: CalledPlugin): CniError {
  const { verb, type, ended = 'interrupt' } = plugin;
  return new CniError(ErrorCode.unknown, `Cannot finish ${verb} of plugin "${type}": it was interrupted`, {
    plugin: { ...plugin, ended },
  });
}
