// What have attachments lost behind their plugins' backs, and what of it can be put back?

import type { AttachmentId } from '../../cni/attachment.ts';
import { REPAIR_VARIABLE } from '../../cni/env.ts';
import { type CniError, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { atLeast, SINCE } from '../../cni/version.ts';
import { type Claim, claimRecord } from '../../journal/claim.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { listRecords } from '../../journal/store.ts';
import { settleClaimed } from '../change/settle.ts';
import { isUnfinished } from '../change/unfinished.ts';
import type { Conflist } from '../config/conflist.ts';
import { acceptResult } from '../run/accept-result.ts';
import { callAll } from '../run/call-plugins.ts';
import { IGNORED, type ReadReply } from '../run/plugin-outcome.ts';
import { buildRequest } from '../run/request.ts';
import { type Attachment, type ChainRuntime, deadlineOf } from '../run/runtime.ts';
import { findConfigOfAdd } from './config-of-add.ts';
import { withRecordedDirs } from './delete-attachment.ts';
import { findReason, type Recovery, recover } from './recover.ts';
import { findCached, findRecord, type RememberedAdd, toRemembered } from './remembered-add.ts';
import { writeAttachment } from './result-cache.ts';
import { isOfLaterAdd } from './successor.ts';

/** What to repair, and by which means. */
export interface RepairScope {
  /** Every network unless given. */
  readonly network?: string;
  /** Change nothing: plugins get CHECK only. */
  readonly dryRun?: boolean;
  /**
   * Run ADD again for chained plugins that do not support repair. Most of them only add rules, but only the person who chose
   * a plugin knows what it does.
   */
  readonly foreign?: boolean;
}

/** The condition of one plugin's part of an attachment. */
export interface PluginCondition {
  readonly link: string;
  readonly index: number;
  /** `sound`: CHECK passes. `mended`: CHECK passes after something was put back. `broken`: CHECK fails. */
  readonly state: 'sound' | 'mended' | 'broken';
  /** What CHECK reported first. */
  readonly problem?: string;
  /** What CHECK still reports. */
  readonly error?: CniError;
}

/** The condition of an attachment. */
export interface AttachmentCondition extends AttachmentId {
  /** `skipped`: its plugins were not called. */
  readonly state: PluginCondition['state'] | 'skipped';
  /** Why it was skipped, or why none of its plugins could be called. */
  readonly why?: string;
  readonly links: readonly PluginCondition[];
  /** libcni's cached result was missing and has been written again. */
  readonly cacheWritten?: boolean;
}

/** What a repair found and did. */
export interface RepairReport {
  /** Attachments that had to be deleted: crashed operations and failed DELs. */
  readonly recovered: readonly Recovery[];
  readonly attachments: readonly AttachmentCondition[];
  /** Records that cannot be read. */
  readonly damaged: readonly CniError[];
}

/**
 * Deletes unsettled attachments. Then, for every recorded attachment, every plugin checks its part and, if that fails, puts
 * back what is missing: rules, elements, host addresses, traffic control, sysctls, leases. The container's interface stays, and
 * so do its connections. If the first plugin stays broken, nothing is put back for the others.
 * @throws CniError 5 when the journal cannot be listed
 */
export async function repair(scope: RepairScope, runtime: ChainRuntime): Promise<RepairReport> {
  const { network, dryRun = false } = scope;
  const { stateDir } = runtime;
  if (stateDir === undefined) return { recovered: [], attachments: [], damaged: [] };
  const recovered = dryRun
    ? listRecords(stateDir, network).records.flatMap(record => findRecovery(record, runtime))
    : await recover({ ...(network === undefined ? {} : { network }), all: true }, runtime);
  const { records, damaged } = listRecords(stateDir, network);
  const attachments: AttachmentCondition[] = [];
  for (const record of records.filter(({ phase }) => phase === 'attached')) {
    if (runtime.signal?.aborted) break;
    if (findReason(record, runtime.env) === undefined)
      attachments.push(await repairOne(stateDir, record, scope, runtime));
  }
  return { recovered, attachments, damaged };
}

/** What a repair would delete: the attachment of the record, or nothing. */
export function findRecovery(record: AttachmentRecord, { env }: Pick<ChainRuntime, 'env'>): Recovery[] {
  const { network, containerId, ifname } = record;
  const why = findReason(record, env);
  return why === undefined ? [] : [{ network, containerId, ifname, why }];
}

/**
 * Repairs the attachment of one record that is settled and of this boot. Never throws.
 * @param seen its record as the caller read it; `catena set` may have changed the attachment since, and may until it is claimed
 */
export async function repairOne(
  stateDir: string,
  seen: AttachmentRecord,
  scope: RepairScope,
  runtime: ChainRuntime,
): Promise<AttachmentCondition> {
  const { network, containerId, ifname } = seen;
  const id = { network, containerId, ifname };
  const skipped = (why: string): AttachmentCondition => ({ ...id, state: 'skipped', why, links: [] });
  const broken = (error: unknown): AttachmentCondition => {
    return { ...id, state: 'broken', why: toCniError(error).message, links: [] };
  };
  const now = findRecord(id, { ...runtime, stateDir }) ?? seen;
  const list = listToRepairBy(now, runtime);
  if (typeof list === 'string') return skipped(list);
  if (scope.dryRun) return await examineRecorded(list, now, scope, runtime).catch(broken);
  let claim: Claim | undefined;
  try {
    // The claim keeps a repair and a DEL or change of the same attachment from running at the same time.
    const won = claimRecord(stateDir, id, isAttached, 'REPAIR', deadlineOf(runtime, 'CHECK'));
    if (won === undefined) return skipped('it has just been deleted');
    if ('holder' in won) return skipped(`process ${won.holder.pid} is working on it`);
    claim = won;
    const record = await settled(claim, stateDir, runtime);
    const listNow = listToRepairBy(record, runtime);
    if (typeof listNow === 'string') return skipped(listNow);
    const condition = await examineRecorded(listNow, record, scope, runtime);
    const cacheWritten =
      condition.state !== 'broken' && ensureCached(record, { ...runtime, cacheDir: record.cacheDir });
    return { ...condition, ...(cacheWritten ? { cacheWritten } : {}) };
  } catch (error) {
    return broken(error);
  } finally {
    claim?.leave();
  }
}

/** The record of a claimed attachment, after a change whose runner died has been undone or finished. */
async function settled(claim: Claim, stateDir: string, runtime: ChainRuntime): Promise<AttachmentRecord> {
  return isUnfinished(claim.record) ? await settleClaimed(claim, stateDir, runtime) : claim.record;
}

async function examineRecorded(
  list: Conflist,
  record: AttachmentRecord,
  scope: RepairScope,
  runtime: ChainRuntime,
): Promise<AttachmentCondition> {
  const { network, containerId, ifname, cacheDir } = record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir };
  const links = await repairPlugins(list, record, scope, reaching);
  return { network, containerId, ifname, state: worstOf(links), links };
}

/** The condition of an attachment whose plugins are in these conditions. */
export function worstOf(plugins: readonly PluginCondition[]): PluginCondition['state'] {
  const states = ['broken', 'mended'] as const;
  return states.find(one => plugins.some(({ state }) => state === one)) ?? 'sound';
}

function isAttached({ phase }: AttachmentRecord): boolean {
  return phase === 'attached';
}

/** The configuration that the plugins of an attachment are called with, or why they cannot be called. */
function listToRepairBy(record: AttachmentRecord, runtime: ChainRuntime): Conflist | string {
  const { netns, cacheDir } = record;
  const { onWarning: _, ...quiet } = runtime;
  const list = findConfigOfAdd(toRemembered(record), runtime);
  if (isOfLaterAdd(findCached(record, { ...quiet, cacheDir }), record))
    return 'another runtime has since attached it again; run catena adopt to take that over';
  const place = compareNetns(netns, record);
  if (place === 'gone') return `its namespace "${netns}" no longer exists; DEL deletes it`;
  if (place === 'other') return `"${netns}" is no longer the namespace of its ADD; DEL deletes it`;
  if (list === undefined) return 'its configuration cannot be used';
  if (list.disableCheck) return 'its list sets "disableCheck"';
  if (!atLeast(list.version, SINCE.check))
    return `its list has version ${list.version}, which has no CHECK; run DEL and ADD to recreate it`;
  return list;
}

/** What the plugins of an attachment are called with. */
type RepairedAdd = Pick<
  RememberedAdd,
  'result' | 'containerId' | 'netns' | 'ifname' | 'args' | 'capabilityArgs'
> &
  Partial<Pick<AttachmentRecord, 'outcomes'>>;

/** Has every plugin check its part and, if that fails, put back what is missing. */
export async function repairPlugins(
  list: Conflist,
  add: RepairedAdd,
  scope: RepairScope,
  runtime: ChainRuntime,
): Promise<PluginCondition[]> {
  const { result, containerId, netns, ifname, args, capabilityArgs, outcomes = [] } = add;
  const attachment: Attachment = { containerId, netns, ifname, args, capabilityArgs };
  const prevResult = result && convertResult(result, list.version, 'recorded result');
  const repairing = { ...runtime, env: { ...(runtime.env ?? process.env), [REPAIR_VARIABLE]: '1' } };
  const plugins: PluginCondition[] = [];
  for (const [index, entry] of list.plugins.entries()) {
    const call = (how: ChainRuntime) => () =>
      callOne(list, 'CHECK', index, prevResult, attachment, how, IGNORED);
    const addAgain = async () => {
      const before = outcomes.find(one => one.index === index - 1)?.result;
      const read: ReadReply<JsonObject> = (stdout, plugin) => acceptResult(stdout, list.version, plugin);
      await callOne(list, 'ADD', index, before, attachment, runtime, read);
      await call(runtime)();
    };
    const link = { link: entry.type, index };
    const problem = await failureOf(call(runtime));
    if (problem === undefined) {
      plugins.push({ ...link, state: 'sound' });
      continue;
    }
    let error: CniError | undefined = problem;
    // The other plugins would put back rules for an interface that does not exist.
    const isLost = scope.dryRun || plugins[0]?.state === 'broken';
    if (!isLost) error = await failureOf(call(repairing));
    // The ADD of a first plugin would create a second interface.
    if (error && scope.foreign && !isLost && index > 0) error = await failureOf(addAgain);
    const found = { problem: problem.message, ...(error ? { error } : {}) };
    plugins.push({ ...link, state: error ? 'broken' : 'mended', ...found });
  }
  return plugins;
}

async function callOne(
  list: Conflist,
  verb: 'CHECK' | 'ADD',
  index: number,
  prevResult: JsonObject | undefined,
  attachment: Attachment,
  runtime: ChainRuntime,
  read: ReadReply<unknown>,
): Promise<void> {
  const entry = list.plugins[index];
  if (entry === undefined) return;
  const request = buildRequest(list, entry, { prevResult, capabilityArgs: attachment.capabilityArgs });
  await callAll({ list, verb, order: [index], read, attachment, requestFor: () => request }, runtime);
}

async function failureOf(work: () => Promise<void>): Promise<CniError | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return toCniError(error);
  }
}

/** cnitool and others read the cached result. */
function ensureCached(record: AttachmentRecord, runtime: ChainRuntime): boolean {
  if (findCached(record, runtime) !== undefined) return false;
  writeAttachment(record.cacheDir, toRemembered(record));
  return true;
}
