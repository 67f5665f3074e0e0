// How are plugins undone: all of a list for DEL, those that ran for a failed ADD?
import type { PluginEntry } from '../../cni/conflist.ts';
import { CniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { atLeast, SINCE, type SpecVersion } from '../../cni/version.ts';
import type { Conflist } from '../config/conflist.ts';
import { callEach } from './call-plugins.ts';
import { describePluginError, withDetails } from './plugin-errors.ts';
import { IGNORED } from './plugin-outcome.ts';
import { buildRequest } from './request.ts';
import type { Attachment, ChainRuntime } from './runtime.ts';

/**
 * DEL of the plugins from `last` down to the first. Every one runs, even after one failed.
 * @returns the errors of those that failed
 */
export async function undoPlugins(
  list: Conflist,
  last: number,
  attachment: Attachment,
  runtime: ChainRuntime,
  result: JsonObject | undefined,
): Promise<unknown[]> {
  const { capabilityArgs } = attachment;
  const prevResult = atLeast(list.version, SINCE.prevResultOnDel)
    ? findConverted(result, list.version, runtime)
    : undefined;
  const order = [...list.plugins.keys()].slice(0, last + 1).reverse();
  return callEach(
    {
      list,
      verb: 'DEL',
      order,
      read: IGNORED,
      attachment,
      requestFor: index =>
        buildRequest(list, list.plugins[index] as PluginEntry, { prevResult, capabilityArgs }),
    },
    runtime,
  );
}

/**
 * Undoes a failed ADD: DEL of the plugins that ran, including the failed one.
 * @param lastBegun index of the last plugin that may have had an effect; -1 for none
 * @param result of the last plugin that succeeded
 * @returns the error to throw, which is the given one with the failures of DEL in its details; and these failures
 */
export async function unwind(
  error: unknown,
  list: Conflist,
  lastBegun: number,
  attachment: Attachment,
  runtime: ChainRuntime,
  result: JsonObject | undefined,
): Promise<{ readonly final: unknown; readonly failures: readonly unknown[] }> {
  // The signal that stopped the ADD must not stop its undo.
  const undeterred = { ...runtime, signal: undefined };
  const errors = await undoPlugins(list, lastBegun, attachment, undeterred, result);
  if (!errors.length) return { final: error, failures: [] };
  const text = `undoing it failed too: ${errors.map(describePluginError).join('; ')}`;
  return { final: withDetails(error, text, errors), failures: errors };
}

function findConverted(
  result: JsonObject | undefined,
  version: SpecVersion,
  { onWarning }: ChainRuntime,
): JsonObject | undefined {
  try {
    return result && convertResult(result, version, 'cached result');
  } catch (error) {
    // DEL works without a result, so a bad one must not stop it.
    if (error instanceof CniError) onWarning?.(error);
    return undefined;
  }
}
