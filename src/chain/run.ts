// How do ADD, CHECK, DEL and STATUS run over the links of a list?
import type { PluginEntry } from '../cni/conflist.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { acceptResult } from './accept-result.ts';
import { beginRecord } from './add-record.ts';
import type { AttachmentId } from './cache-record.ts';
import type { Conflist } from './conflist.ts';
import { clearTheWay } from './earlier.ts';
import { findFrozen, idOf, toCached, withCachedArgs } from './frozen.ts';
import { chooseKnown, findCached, findRecord } from './known.ts';
import { withDetails } from './link-errors.ts';
import { findExecutable, IGNORED, openLinks } from './links.ts';
import { explainConflict } from './plugin-version.ts';
import { isOfEarlierBoot, recover } from './recover.ts';
import { buildRequest } from './request.ts';
import { cacheFileOf, readAttachment, removeAttachment, writeAttachment } from './result-cache.ts';
import { type Attachment, cacheDirOf, checkAttachment, type Runtime } from './runtime.ts';
import { tearDown } from './tear-down.ts';
import { inTurn } from './turns.ts';
import { unwind } from './undo.ts';

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
  const executables = list.plugins.map(({ type }) => findExecutable(type, runtime));
  // First of all: what is taken down gives its addresses back.
  await recover({ network: list.name }, runtime);
  const earlier = await clearTheWay(idOf(list, attachment), runtime);
  const again = earlier === undefined ? undefined : findAnswer(idOf(list, attachment), runtime);
  if (again) return convertResult(again, list.version, 'recorded result');
  const record = beginRecord(list, attachment, runtime, { executables, standing: earlier !== undefined });

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
  links.foretell(
    index => buildRequest(list, list.plugins[index] as PluginEntry, { capabilityArgs }),
    last => record.together(last),
  );
  let result = attachment.prevResult;
  let reached = -1;
  try {
    for (const [index, entry] of list.plugins.entries()) {
      reached = index;
      result = await links.call(index, buildRequest(list, entry, { prevResult: result, capabilityArgs }));
      record.link(index, result);
    }
    writeAttachment(cacheDirOf(runtime), { ...toCached(list, attachment), result });
    record.done();
  } catch (error) {
    const begun = await links.begun();
    links.close();
    record.linkFailed(reached, error);
    // What stands belongs to the earlier ADD: taking it down would cost a working container its network.
    if (earlier !== undefined) {
      record.leave();
      throw withDetails(
        error,
        `an earlier ADD is on record in "${earlier}": nothing was undone, run DEL first`,
      );
    }
    const { final, failures } = await unwind(
      error,
      list,
      Math.max(reached, begun),
      attachment,
      runtime,
      result,
    );
    if (failures.length) record.fail(failures);
    else {
      removeAttachment(cacheDirOf(runtime), idOf(list, attachment));
      record.drop();
    }
    throw await explainConflict(final, list, runtime);
  }
  return result as JsonObject;
}

/** The result of an ADD that the caller has asked for before, when it did not hear how that went. */
function findAnswer(id: AttachmentId, runtime: Runtime): JsonObject | undefined {
  const { request } = runtime;
  if (request === undefined) return undefined;
  const record = findRecord(id, runtime);
  return record?.request === request ? record.result : undefined;
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
  const id = idOf(list, attachment);
  const record = findRecord(id, runtime);
  refuseOtherNetns(attachment, record, runtime);
  const cached = chooseKnown(
    record,
    record ? findCached(id, runtime) : readAttachment(cacheDirOf(runtime), id),
  );
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
      `Cannot check interface "${id.ifname}" of container "${id.containerId}" on network "${id.network}": no ADD is on record in "${cacheFileOf(cacheDirOf(runtime), id)}"`,
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
  await tearDown(list, attachment, runtime);
  await recover({ network: list.name }, runtime);
}

/**
 * Asks every link whether it could serve an ADD (from 1.1.0 on; older lists have no such question).
 * @throws CniError of the first that could not, with its own code (50, 51)
 */
export async function networkStatus(list: Conflist, runtime: Runtime): Promise<void> {
  if (!atLeast(list.version, SINCE.status)) return;
  await callInOrder(list, 'STATUS', runtime, undefined, entry => buildRequest(list, entry));
}

/** The path may lead to another container by now, whose network is not ours to judge. */
function refuseOtherNetns(
  { netns, containerId }: Attachment,
  record: AttachmentRecord | undefined,
  { env }: Runtime,
): void {
  if (record === undefined) return;
  const boot = isOfEarlierBoot(record, env);
  if (!boot && compareNetns(netns, record.netnsIdentity) !== 'other') return;
  throw new CniError(
    ErrorCode.invalidNetns,
    `Cannot check container "${containerId}": ${boot ? 'its ADD was in an earlier boot of the machine' : `"${netns}" is not the namespace of its ADD any more`}`,
  );
}

async function callInOrder(
  list: Conflist,
  verb: 'CHECK' | 'STATUS',
  runtime: Runtime,
  attachment: Attachment | undefined,
  requestFor: (entry: PluginEntry) => JsonObject,
): Promise<void> {
  const order = [...list.plugins.keys()];
  const links = openLinks(list, verb, runtime, order, IGNORED, attachment);
  const requestOf = (index: number): JsonObject => requestFor(list.plugins[index] as PluginEntry);
  links.foretell(requestOf);
  try {
    for (const index of order) await links.call(index, requestOf(index));
  } finally {
    links.close();
  }
}
