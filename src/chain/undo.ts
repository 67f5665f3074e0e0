// How are links undone: all of a list for DEL, those that ran for a failed ADD?
import type { PluginEntry } from '../cni/conflist.ts';
import { CniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import { atLeast, SINCE, type SpecVersion } from '../cni/version.ts';
import type { Conflist } from './conflist.ts';
import { describeLinkError, withDetails } from './link-errors.ts';
import { IGNORED, openLinks } from './links.ts';
import { buildRequest } from './request.ts';
import type { Attachment, Runtime } from './runtime.ts';

/**
 * DEL of the links from `last` down to the first; every one runs, whatever happens to the others.
 * @returns the errors of those that failed
 */
export async function undoLinks(
  list: Conflist,
  last: number,
  attachment: Attachment,
  runtime: Runtime,
  result: JsonObject | undefined,
): Promise<unknown[]> {
  const { capabilityArgs } = attachment;
  const prevResult = atLeast(list.version, SINCE.prevResultOnDel)
    ? findConverted(result, list.version, runtime)
    : undefined;
  const order = [...list.plugins.keys()].slice(0, last + 1).reverse();
  const links = openLinks(list, 'DEL', runtime, order, IGNORED, attachment);
  const requestFor = (index: number): JsonObject =>
    buildRequest(list, list.plugins[index] as PluginEntry, { prevResult, capabilityArgs });
  links.foretell(requestFor);
  const errors: unknown[] = [];
  for (const index of order) await links.call(index, requestFor(index)).catch(error => errors.push(error));
  links.close();
  return errors;
}

/**
 * Undoes a failed ADD: DEL of the links that ran, the failing one included.
 * @param reached index of the failing link
 * @param result of the last link that succeeded
 * @returns the error to throw: the given one, with what went wrong meanwhile in its details; and that by itself
 */
export async function unwind(
  error: unknown,
  list: Conflist,
  reached: number,
  attachment: Attachment,
  runtime: Runtime,
  result: JsonObject | undefined,
): Promise<{ readonly final: unknown; readonly failures: readonly unknown[] }> {
  // What stopped the ADD must not stop its undoing.
  const undeterred = { ...runtime, signal: undefined };
  const errors = await undoLinks(list, ranLast(error, reached), attachment, undeterred, result);
  if (!errors.length) return { final: error, failures: [] };
  const text = `undoing failed as well: ${errors.map(describeLinkError).join('; ')}`;
  return { final: withDetails(error, text, errors), failures: errors };
}

/** A link whose process did not start has nothing to undo, and could not be started to undo it. */
function ranLast(error: unknown, reached: number): number {
  const link = error instanceof CniError ? error.link : undefined;
  const started = link === undefined || link.exitCode !== undefined || link.signal !== undefined;
  return started ? reached : reached - 1;
}

function findConverted(
  result: JsonObject | undefined,
  version: SpecVersion,
  { onWarning }: Runtime,
): JsonObject | undefined {
  try {
    return result && convertResult(result, version, 'cached result');
  } catch (error) {
    // DEL works without a result, and must not be kept from working by a bad one.
    if (error instanceof CniError) onWarning?.(error);
    return undefined;
  }
}
