// How do ADD, CHECK, DEL and STATUS run over the plugins of a list, or of one plugin without a list?

import { type KnownAttachment, pastOf, readAttachment } from '../../attachments/store.ts';
import { type AttachmentId, cacheFileOf, describeAttachment } from '../../cni/attachment.ts';
import { cacheDirOf } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { ipamTypeIn } from '../../cni/plugin-about.ts';
import { atLeast, convertResult, type ResultOf, SINCE } from '../../cni/result.ts';
import type { Conflist } from '../config/conflist.ts';
import {
  type FoundPlugin,
  findExecutable,
  isOwnExecutable,
  isOwnPlugin,
  ownExecutables,
} from '../config/find-plugin.ts';
import { deleteAttachment, type IsStill } from '../records/delete-attachment.ts';
import { findConfigOfAdd, findRecord, idOf, isChangedSince, withCachedArgs } from '../records/known-add.ts';
import { prepare, recover, rollback } from '../records/recover.ts';
import { callAll, callPlugins } from './call-plugins.ts';
import { type Attachment, type ChainRuntime, checkAttachment } from './runtime.ts';
import { inTurn } from './turns.ts';

/**
 * Attaches a container to a network. Calls every plugin in order, each with the result of the one before. If a plugin fails,
 * the plugins that ran, including the failed one, are undone in reverse order, and its error is thrown.
 * @returns the last plugin's result, in the list's version
 * @throws CniError of the plugin that failed; failures of the undo are in its details
 */
export function addNetwork(list: Conflist, attachment: Attachment, runtime: ChainRuntime): Promise<ResultOf> {
  const id = idOf(list, attachment);
  return inTurn(id, runtime, () => add(id, list, attachment, runtime));
}

async function add(
  id: AttachmentId,
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
): Promise<ResultOf> {
  checkAttachment(attachment, 'ADD', runtime);
  const executables = list.plugins.map(({ type }) => findExecutable(type, runtime));
  refuseMissingIpam(list, executables, runtime);
  const paths = executables.map(({ path }) => path);
  const prepared = await prepare(id, list, attachment, runtime, paths);
  if ('answer' in prepared) return prepared.answer;

  let result = attachment.prevResult;
  const call = { list, verb: 'ADD', attachment, executables } as const;
  const replies = callPlugins<JsonObject>({ ...call, held: prepared.held }, runtime);
  try {
    for await (const reply of replies) {
      if ('error' in reply) throw reply.error;
      result = reply.value;
    }
    if (result && runtime.amend) result = await runtime.amend(result);
    prepared.held.commit({ result });
  } catch (error) {
    throw await rollback(prepared, error, replies.lastBegun, result);
  } finally {
    prepared.held.release();
  }
  return result as ResultOf;
}

/**
 * A plugin of ours calls its IPAM plugin for DEL as well, which would fail for ever without one, by the list that ADD had. Where a foreign
 * plugin looks is not known.
 * @throws CniError 7 and 0 as {@link findExecutable}
 */
function refuseMissingIpam(
  { plugins }: Conflist,
  executables: readonly FoundPlugin[],
  runtime: ChainRuntime,
): void {
  const { isOwn = isOwnExecutable } = runtime;
  for (const [i, { conf }] of plugins.entries()) {
    const type = ipamTypeIn(conf);
    if (type === undefined) continue;
    try {
      findExecutable(type, runtime);
    } catch (error) {
      const { path = '', stat } = executables[i] ?? {};
      if (isOwn(path, stat)) throw error;
    }
  }
}

/**
 * Calls CHECK of every plugin, in order, with the configuration, arguments and result of the ADD.
 * @throws CniError of the first plugin that reports a problem, or when no ADD is on record
 */
export function checkNetwork(list: Conflist, attachment: Attachment, runtime: ChainRuntime): Promise<void> {
  return inTurn(idOf(list, attachment), runtime, () => check(list, attachment, runtime));
}

/**
 * The list that {@link checkNetwork} is called with, or why it cannot be. Of a list from before CHECK, our own plugins are asked: they know later
 * versions.
 * `unchecked`: nothing but another list would change that.
 */
export function listToCheckBy(
  list: Conflist | undefined,
  runtime: Pick<ChainRuntime, 'find' | 'pluginDirs'>,
): Conflist | { readonly why: string; readonly unchecked?: true } {
  if (list === undefined) return { why: 'its configuration cannot be used' };
  if (list.disableCheck) return { why: 'its list sets "disableCheck"', unchecked: true };
  if (atLeast(list.version, SINCE.check)) return list;
  const isOwn = ownExecutables();
  // Results before that have no interfaces to compare.
  const plugins = atLeast(list.version, '0.3.0')
    ? list.plugins.filter(({ type }) => isOwnPlugin(type, runtime, isOwn))
    : [];
  if (plugins.length > 0) return { ...list, version: SINCE.check, plugins, isRaised: true };
  return { why: `its list has version ${list.version}, which has no CHECK`, unchecked: true };
}

async function check(list: Conflist, attachment: Attachment, runtime: ChainRuntime): Promise<void> {
  checkAttachment(attachment, 'CHECK', runtime);
  if (list.disableCheck) return;
  const id = idOf(list, attachment);
  for (;;) {
    const record = await findSettled(id, runtime);
    try {
      return await checkRecorded(list, attachment, record, runtime);
    } catch (error) {
      // Another process may have changed the attachment during the check.
      const { onWarning: _, ...quiet } = runtime;
      if (!isChangedSince(record, findRecord(id, quiet))) throw error;
    }
  }
}

/** The record after a change of it has ended or, if its runner died, been undone or finished. */
async function findSettled(id: AttachmentId, runtime: ChainRuntime): Promise<KnownAttachment | undefined> {
  const record = findRecord(id, runtime);
  if (record === undefined || pastOf(record, runtime.env).kind !== 'changing') return record;
  const { settleChange } = await import('../change.ts');
  await settleChange(id, runtime);
  return findRecord(id, runtime);
}

async function checkRecorded(
  list: Conflist,
  attachment: Attachment,
  record: KnownAttachment | undefined,
  runtime: ChainRuntime,
): Promise<void> {
  const id = idOf(list, attachment);
  refuseOtherNetns(attachment, record, runtime);
  const cached = record ?? readAttachment({ cacheDir: cacheDirOf(runtime) }, id);
  const frozen = list.isRaised ? list : (findConfigOfAdd(cached, runtime) ?? list);
  if (!atLeast(frozen.version, SINCE.check)) {
    throw new CniError(
      ErrorCode.incompatibleVersion,
      `Cannot check network "${list.name}": configuration version "${frozen.version}" does not support the CHECK command`,
    );
  }
  if (cached?.result === undefined) {
    throw new CniError(
      ErrorCode.unknownContainer,
      `Cannot check ${describeAttachment(id)}: no ADD is recorded in "${cacheFileOf(cacheDirOf(runtime), id)}"`,
    );
  }
  const prevResult = convertResult(cached.result, frozen.version, 'cached result');
  const asAdded = withCachedArgs(attachment, cached);
  await callAll({ list: frozen, verb: 'CHECK', attachment: asAdded, prevResult }, runtime);
}

/**
 * Detaches a container. Calls every plugin in reverse order, even after one failed, with the configuration, arguments and
 * result of the ADD if they are on record. The record is deleted when all have succeeded.
 * @param isStill called once no other process can change the record; nothing is done if it returns false
 * @throws CniError of the plugin that failed, or one error that joins several
 */
export function deleteNetwork(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  isStill?: IsStill,
): Promise<void> {
  return inTurn(idOf(list, attachment), runtime, async () => {
    checkAttachment(attachment, 'DEL', runtime);
    await deleteAttachment(list, attachment, runtime, isStill);
    await recover({ network: list.name }, runtime);
  });
}

/**
 * Asks every plugin whether it could serve an ADD. STATUS exists from 1.1.0 on; for older lists nothing is called.
 * @throws CniError of the first plugin that could not, with its own code (50, 51)
 */
export async function networkStatus(list: Conflist, runtime: ChainRuntime): Promise<void> {
  if (!atLeast(list.version, SINCE.status)) return;
  await callAll({ list, verb: 'STATUS' }, runtime);
}

/** The path may already belong to another container, whose network we must not check. */
function refuseOtherNetns(
  { netns, containerId }: Attachment,
  record: KnownAttachment | undefined,
  { env }: ChainRuntime,
): void {
  if (record === undefined) return;
  const past = pastOf(record, env);
  past.refuseElsewhere();
  const isOutlived = past.kind === 'outlived';
  if (!isOutlived && past.netns(netns) !== 'other') return;
  throw new CniError(
    ErrorCode.invalidNetns,
    `Cannot check container "${containerId}": ${isOutlived ? 'its ADD ran in an earlier boot of the machine' : `"${netns}" is no longer the namespace of its ADD`}`,
  );
}

/**
 * ADD of a single plugin, see {@link parsePlugin}. It gets its own configuration under its own name and version,
 * without `prevResult`. Its result is recorded with the configuration's own bytes, as libcni does.
 * @returns the result, in the configuration's version
 * @throws CniError when it failed; then it was undone
 */
export const addPlugin: typeof addNetwork = addNetwork;

/**
 * CHECK of a single plugin with the result of its ADD. Ignores `disableCheck`, which only lists have.
 * @throws CniError when it reports a problem, or when no ADD is on record
 */
export function checkPlugin(plugin: Conflist, attachment: Attachment, runtime: ChainRuntime): Promise<void> {
  return checkNetwork({ ...plugin, disableCheck: false }, attachment, runtime);
}

/**
 * DEL of a single plugin with the result of its ADD; the record is deleted on success.
 * @throws CniError when it failed
 */
export const deletePlugin: typeof deleteNetwork = deleteNetwork;
