// How do ADD, CHECK, DEL and STATUS run over the links of a list?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { acceptResult } from './accept-result.ts';
import type { Conflist } from './conflist.ts';
import { findCached, findFrozen, idOf, toCached, withCachedArgs } from './frozen.ts';
import { joinErrors, withDetails } from './link-errors.ts';
import { findExecutable, IGNORED, openLinks } from './links.ts';
import { explainConflict } from './plugin-version.ts';
import { buildRequest } from './request.ts';
import { cacheFileOf, readAttachment, removeAttachment, writeAttachment } from './result-cache.ts';
import { type Attachment, cacheDirOf, checkAttachment, type Runtime } from './runtime.ts';
import { inTurn } from './turns.ts';
import { undoLinks, unwind } from './undo.ts';

/**
 * Attaches a container to a network: every link in order, each with the result of the one before. When one fails,
 * the links that ran are undone, last first and the failing one included, and its error is thrown.
 * @returns the last link's result, in the list's version
 * @throws CniError of the link that failed; what went wrong while undoing is in its details
 */
export function addNetwork(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<JsonObject> {
  return inTurn(attachment.containerId, runtime, () => add(list, attachment, runtime));
}

async function add(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<JsonObject> {
  checkAttachment(attachment, 'ADD', runtime);
  const id = idOf(list, attachment);
  const cacheDir = cacheDirOf(runtime);
  for (const { type } of list.plugins) findExecutable(type, runtime);
  const earlier = findCached(id, runtime);

  const { capabilityArgs } = attachment;
  const order = [...list.plugins.keys()];
  const links = openLinks(
    list,
    'ADD',
    runtime,
    order,
    (stdout, link) => acceptResult(stdout, list.version, link),
    attachment,
  );
  let result: JsonObject | undefined;
  let reached = -1;
  try {
    for (const [index, entry] of list.plugins.entries()) {
      reached = index;
      result = await links.call(index, buildRequest(list, entry, { prevResult: result, capabilityArgs }));
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
    const final = await unwind(error, list, reached, attachment, runtime, result);
    throw await explainConflict(final, list, runtime);
  }
  return result as JsonObject;
}

/**
 * Asks every link, in order, whether its part of the attachment still stands; with the configuration, arguments and
 * result of its ADD.
 * @throws CniError of the first link that objects, or when there is no ADD on record
 */
export function checkNetwork(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  return inTurn(attachment.containerId, runtime, () => check(list, attachment, runtime));
}

async function check(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  checkAttachment(attachment, 'CHECK', runtime);
  if (list.disableCheck) return;
  const cacheDir = cacheDirOf(runtime);
  const id = idOf(list, attachment);
  const cached = readAttachment(cacheDir, id);
  const frozen = findFrozen(cached, runtime) ?? list;
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
  const prevResult = convertResult(cached.result, frozen.version, 'cached result');
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
export function deleteNetwork(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  return inTurn(attachment.containerId, runtime, () => del(list, attachment, runtime));
}

async function del(list: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  checkAttachment(attachment, 'DEL', runtime);
  const id = idOf(list, attachment);
  const cached = findCached(id, runtime);
  const frozen = findFrozen(cached, runtime) ?? list;
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
  removeAttachment(cacheDirOf(runtime), id);
}

/**
 * Asks every link whether it could serve an ADD (from 1.1.0 on; older lists have no such question).
 * @throws CniError of the first that could not, with its own code (50, 51)
 */
export async function networkStatus(list: Conflist, runtime: Runtime): Promise<void> {
  if (!atLeast(list.version, SINCE.status)) return;
  await callInOrder(list, 'STATUS', runtime, undefined, entry => buildRequest(list, entry));
}

async function callInOrder(
  list: Conflist,
  verb: 'CHECK' | 'STATUS',
  runtime: Runtime,
  attachment: Attachment | undefined,
  requestFor: (entry: Conflist['plugins'][number]) => JsonObject,
): Promise<void> {
  const links = openLinks(list, verb, runtime, [...list.plugins.keys()], IGNORED, attachment);
  try {
    for (const [index, entry] of list.plugins.entries()) await links.call(index, requestFor(entry));
  } finally {
    links.close();
  }
}
