// How do ADD, CHECK, DEL, GC and STATUS run over the links of a list?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { convertResult, parseResult, resultVersionOf } from '../cni/result.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { type Conflist, parseNetwork } from './conflist.ts';
import { findPlugin } from './find-plugin.ts';
import { joinErrors, withDetails } from './link-errors.ts';
import { openLinks } from './links.ts';
import { buildGcRequest, buildRequest } from './request.ts';
import {
  type AttachmentId,
  type CachedAttachment,
  cacheFileOf,
  listAttachments,
  readAttachment,
  removeAttachment,
  writeAttachment,
} from './result-cache.ts';
import { type Attachment, cacheDirOf, checkAttachment, type Runtime } from './runtime.ts';
import { undoLinks, unwind } from './undo.ts';

/**
 * Attaches a container to a network: every link in order, each with the result of the one before. When one fails,
 * the links that ran are undone, last first and the failing one included, and its error is thrown.
 * @returns the last link's result, in the list's version
 * @throws CniError of the link that failed; what went wrong while undoing is in its details
 */
export async function addNetwork(
  list: Conflist,
  attachment: Attachment,
  runtime: Runtime,
): Promise<JsonObject> {
  checkAttachment(attachment, 'ADD');
  const id = idOf(list, attachment);
  const cacheDir = cacheDirOf(runtime);
  for (const { type } of list.plugins) findPlugin(type, runtime.pluginDirs);
  const earlier = findCached(cacheDir, id);

  const { capabilityArgs } = attachment;
  const links = openLinks(list, 'ADD', runtime, [...list.plugins.keys()], attachment);
  let result: JsonObject | undefined;
  let reached = -1;
  try {
    for (const [index, entry] of list.plugins.entries()) {
      reached = index;
      const request = buildRequest(list, entry, { prevResult: result, capabilityArgs });
      result = toListVersion(await links.call(index, request), list, index);
    }
    writeAttachment(cacheDir, { ...toCached(list, attachment), result });
  } catch (error) {
    links.close();
    // What stands belongs to the earlier ADD: taking it down would cost a working container its network.
    if (earlier !== undefined)
      throw withDetails(
        error,
        `an earlier ADD is on record in "${cacheFileOf(cacheDir, id)}": nothing was undone, run DEL first`,
      );
    throw await unwind(error, list, reached, attachment, runtime, result);
  }
  return result as JsonObject;
}

/**
 * Asks every link, in order, whether its part of the attachment still stands; with the configuration, arguments and
 * result of its ADD.
 * @throws CniError of the first link that objects, or when there is no ADD on record
 */
export async function checkNetwork(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  checkAttachment(attachment, 'CHECK');
  if (list.disableCheck) return;
  const cacheDir = cacheDirOf(runtime);
  const id = idOf(list, attachment);
  const cached = readAttachment(cacheDir, id);
  const frozen = findFrozen(cached) ?? list;
  if (!atLeast(frozen.version, SINCE.check)) {
    throw new CniError(
      ErrorCode.incompatibleVersion,
      `Cannot check network "${list.name}": configuration version "${frozen.version}" does not support the CHECK command`,
    );
  }
  if (cached?.result === undefined) {
    throw new CniError(
      ErrorCode.unknownContainer,
      `Cannot check interface "${id.ifname}" of container "${id.containerId}" on network "${id.network}": no ADD is on record in "${cacheFileOf(cacheDir, id)}"`,
    );
  }
  const prevResult = convertResult(cached.result, frozen.version);
  const asAdded = withCachedArgs(attachment, cached);
  await callInOrder(frozen, 'CHECK', runtime, asAdded, entry =>
    buildRequest(frozen, entry, { prevResult, capabilityArgs: asAdded.capabilityArgs }),
  );
}

/**
 * Detaches a container: every link in reverse order, even after one failed, with the configuration, arguments and
 * result of its ADD where they are on record. The record goes when all have succeeded.
 * @throws CniError of the link that failed, or one error that joins several
 */
export async function deleteNetwork(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  checkAttachment(attachment, 'DEL');
  const cacheDir = cacheDirOf(runtime);
  const id = idOf(list, attachment);
  const cached = findCached(cacheDir, id);
  const frozen = findFrozen(cached) ?? list;
  const errors = await undoLinks(
    frozen,
    frozen.plugins.length - 1,
    withCachedArgs(attachment, cached),
    runtime,
    cached?.result,
  );
  if (errors.length) {
    throw joinErrors(
      `Cannot delete interface "${id.ifname}" of container "${id.containerId}" from network "${id.network}"`,
      errors,
    );
  }
  removeAttachment(cacheDir, id);
}

/** Which attachments GC leaves: those listed, or none at all. Leaving it out is not possible by accident. */
export type GcScope = { readonly valid: readonly AttachmentKey[] } | { readonly all: true };

/**
 * Deletes every attachment of the network on record that is not valid, then lets each link (from 1.1.0 on) collect
 * what it finds. Goes on after errors.
 * @throws CniError that joins what failed
 */
export async function collectGarbage(list: Conflist, scope: GcScope, runtime: Runtime): Promise<void> {
  if (list.disableGC) return;
  const valid = 'valid' in scope ? scope.valid : [];
  const errors: unknown[] = [];
  for (const cached of listAttachments(cacheDirOf(runtime), list.name)) {
    if (valid.some(key => key.containerID === cached.containerId && key.ifname === cached.ifname)) continue;
    await deleteNetwork(list, cached, runtime).catch(error => {
      const what = `Cannot delete stale attachment "${cached.containerId}" "${cached.ifname}"`;
      errors.push(new Error(what, { cause: error }));
    });
  }
  if (atLeast(list.version, SINCE.gc)) {
    const links = openLinks(list, 'GC', runtime, [...list.plugins.keys()]);
    for (const [index, entry] of list.plugins.entries()) {
      await links.call(index, buildGcRequest(list, entry, valid)).catch(error => errors.push(error));
    }
  }
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${list.name}"`, errors);
}

/**
 * Asks every link whether it could serve an ADD (from 1.1.0 on; older lists have no such question).
 * @throws CniError of the first that could not, with its own code (50, 51)
 */
export async function networkStatus(list: Conflist, runtime: Runtime): Promise<void> {
  if (!atLeast(list.version, SINCE.status)) return;
  await callInOrder(list, 'STATUS', runtime, undefined, entry => buildRequest(list, entry));
}

/**
 * The configuration with which an attachment was made, when it is on record: what to delete it with after its file
 * is gone.
 */
export function findFrozenNetwork(id: AttachmentId, runtime: Runtime): Conflist | undefined {
  return findFrozen(findCached(cacheDirOf(runtime), id));
}

async function callInOrder(
  list: Conflist,
  verb: 'CHECK' | 'STATUS',
  runtime: Runtime,
  attachment: Attachment | undefined,
  requestFor: (entry: Conflist['plugins'][number]) => JsonObject,
): Promise<void> {
  const links = openLinks(list, verb, runtime, [...list.plugins.keys()], attachment);
  try {
    for (const [index, entry] of list.plugins.entries()) await links.call(index, requestFor(entry));
  } finally {
    links.close();
  }
}

/** What a link printed, checked, in the version of the list; unknown keys stay. */
function toListVersion(printed: JsonObject | undefined, list: Conflist, index: number): JsonObject {
  const type = list.plugins[index]?.type ?? '';
  try {
    if (printed === undefined) {
      throw new CniError(
        ErrorCode.decodingFailure,
        `Cannot decode output of plugin "${type}": it printed no result`,
      );
    }
    parseResult(printed, list.version, `result of plugin "${type}"`);
    const labelled = { ...printed, cniVersion: resultVersionOf(printed, list.version) };
    return labelled.cniVersion === list.version ? labelled : convertResult(labelled, list.version);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, error.message, {
      cause: error,
      ...(error.details === undefined ? {} : { details: error.details }),
      link: { network: list.name, link: type, index, verb: 'ADD', exitCode: 0 },
    });
  }
}

/** Like readAttachment(), but a record that cannot be used is none: the steps that call this must go on. */
function findCached(cacheDir: string, id: AttachmentId): CachedAttachment | undefined {
  try {
    return readAttachment(cacheDir, id);
  } catch (error) {
    if (error instanceof CniError && error.code === ErrorCode.decodingFailure) return undefined;
    throw error;
  }
}

function findFrozen(cached: CachedAttachment | undefined): Conflist | undefined {
  if (cached?.source === undefined) return undefined;
  try {
    const list = parseNetwork(cached.source);
    return list.name === cached.network ? list : undefined;
  } catch {
    return undefined;
  }
}

/** As in the reference: arguments of the ADD where there were any, capability arguments always. */
function withCachedArgs(attachment: Attachment, cached: CachedAttachment | undefined): Attachment {
  if (cached?.source === undefined) return attachment;
  const { containerId, ifname, netns } = attachment;
  const args = cached.args.length ? cached.args : (attachment.args ?? []);
  return { containerId, ifname, netns, args, capabilityArgs: cached.capabilityArgs };
}

function idOf(list: Conflist, { containerId, ifname }: Attachment): AttachmentId {
  return { network: list.name, containerId, ifname };
}

function toCached(list: Conflist, attachment: Attachment): Omit<CachedAttachment, 'result'> {
  const { containerId, ifname, netns, args = [], capabilityArgs = {} } = attachment;
  return { network: list.name, containerId, ifname, netns, args, capabilityArgs, source: list.source };
}
