// What have attachments lost behind their plugins' backs, and what of it can be put back?
import { type AttachmentId, keyOf } from '../../cni/attachment.ts';
import { type CniError, toCniError } from '../../cni/errors.ts';
import { atLeast, SINCE } from '../../cni/version.ts';
import { type Claim, claimRecord } from '../../journal/claim.ts';
import { ELSEWHERE, isElsewhere } from '../../journal/elsewhere.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { settleClaimed } from '../change/settle.ts';
import { isUnfinished } from '../change/unfinished.ts';
import type { Conflist } from '../config/conflist.ts';
import { type ChainRuntime, cacheDirOf, deadlineOf } from '../run/runtime.ts';
import { inTurn } from '../run/turns.ts';
import { type Rest, visitAll } from '../run/visits.ts';
import { forgetIfDetached } from './adopted-attachments.ts';
import type { CachedAttachment } from './cache-record.ts';
import { findConfigOfAdd } from './config-of-add.ts';
import { withRecordedDirs } from './delete-attachment.ts';
import { type KnownAttachment, listKnown } from './known-attachments.ts';
import { waitForOrphanProcesses } from './orphan-wait.ts';
import { findItsCache, isThere, noteOf } from './others-del.ts';
import { findReason, type Recovery, recover } from './recover.ts';
import { findCached, findRecord, toRemembered } from './remembered-add.ts';
import { type PluginCondition, type RepairMeans, repairPlugins, worstOf } from './repair-plugins.ts';
import { writeAttachment } from './result-cache.ts';
import { isOfLaterAdd } from './successor.ts';
import { undoIfDeleted } from './undo-if-deleted.ts';

/** What to repair, and by which means. */
export interface RepairScope extends RepairMeans {
  /** Every network unless given. */
  readonly network?: string;
  /** Further state directories whose attachments are repaired: those of the delegate runner. */
  readonly journals?: readonly string[];
  /** Names of attachments that are repaired in parts, each of which has a record of its own. */
  readonly inParts?: ReadonlySet<string>;
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
 * Deletes unsettled attachments. Then, for every attachment, whichever runtime made it, every plugin checks its part and, if that fails,
 * puts back what is missing: rules, elements, host addresses, traffic control, sysctls, leases. The container's interface stays, and
 * so do its connections. If the first plugin stays broken, nothing is put back for the others.
 * @throws CniError 5 when journal or cache cannot be listed
 */
export async function repair(scope: RepairScope, runtime: ChainRuntime): Promise<RepairReport> {
  const { network, dryRun = false, journals = [], inParts } = scope;
  const { stateDir } = runtime;
  if (stateDir === undefined) return { recovered: [], attachments: [], damaged: [] };
  const places = { cacheDir: cacheDirOf(runtime), journals: [stateDir, ...journals] };
  const recovered: Recovery[] = [];
  for (const journal of dryRun ? [] : places.journals) {
    const how = { ...(network === undefined ? {} : { network }), all: true };
    recovered.push(...(await recover(how, { ...runtime, stateDir: journal })));
  }
  const { attachments, damaged } = listKnown(places, network);
  if (dryRun)
    recovered.push(...attachments.flatMap(({ record }) => (record ? findRecovery(record, runtime) : [])));
  const chosen = attachments.filter(({ known, record }) =>
    record
      ? record.phase === 'attached' && findReason(record, runtime.env) === undefined
      : inParts?.has(keyOf(known)) !== true && known.netns !== '' && known.ifname !== LOOPBACK,
  );
  const limits = { atOnce: 1, groupOf: ({ known }: KnownAttachment) => known.network };
  const conditions = await visitAll(chosen, limits, async (one, rest) => {
    if (runtime.signal?.aborted) return [];
    const { known, record, stateDir: journal, cached } = one;
    const isLater = record?.cacheDir === places.cacheDir && isOfLaterAdd(cached, record);
    if (isLater && cached && journal && !dryRun) dropStale(journal, record, cached, runtime);
    if (record === undefined || journal === undefined || isLater)
      return [await repairOthers(known, scope, runtime, noteOf(known, runtime), rest)];
    return [await repairOne(journal, record, scope, runtime, noteOf(record, runtime), rest)];
  });
  return { recovered, attachments: conditions.flat(), damaged };
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
 * @param note of its ADD, for an adopted one, if it was read earlier: a DEL by its runtime removes it
 * @param rest waits until its own runtime's DEL has ended, if one has begun
 */
export async function repairOne(
  stateDir: string,
  seen: AttachmentRecord,
  scope: RepairScope,
  runtime: ChainRuntime,
  note = noteOf(seen, runtime),
  rest?: Rest,
): Promise<AttachmentCondition> {
  const theirs = scope.dryRun ? undefined : findItsCache(seen, runtime);
  const condition = await repairClaimed(stateDir, seen, scope, runtime);
  if (theirs === undefined || condition.links.every(({ state }) => state === 'sound')) return condition;
  const reaching = { ...withRecordedDirs(runtime, seen), stateDir, cacheDir: seen.cacheDir };
  try {
    return (await undoIfDeleted(theirs, note, reaching, rest)) ? skipped(seen, DELETED) : condition;
  } catch (error) {
    return broken(seen, error);
  }
}

/**
 * Repairs an attachment of another runtime, which has no record here. Never throws.
 * @param note of its ADD, read before it was found that something is missing
 * @param rest waits until a DEL that has begun has ended
 */
export async function repairOthers(
  cached: CachedAttachment,
  scope: RepairScope,
  runtime: ChainRuntime,
  note = noteOf(cached, runtime),
  rest?: Rest,
): Promise<AttachmentCondition> {
  const { onWarning: _, ...quiet } = runtime;
  try {
    const list = listToCheckBy(findConfigOfAdd(cached, runtime));
    if ('why' in list) return skipped(cached, list.why);
    if (!isThere(cached, quiet))
      return skipped(cached, `"${cached.netns}" is not, or no longer, its namespace`);
    const links = await inTurn(cached, runtime, () => repairPlugins(list, cached, scope, runtime));
    const condition = { ...idOf(cached), state: worstOf(links), links };
    if (scope.dryRun || condition.state === 'sound') return condition;
    return (await undoIfDeleted(cached, note, runtime, rest)) ? skipped(cached, DELETED) : condition;
  } catch (error) {
    return broken(cached, error);
  }
}

/** Drops our record of an earlier attachment of the same name, unless a process works on it. */
function dropStale(
  stateDir: string,
  record: AttachmentRecord,
  cached: CachedAttachment,
  runtime: ChainRuntime,
): void {
  const isStale = (now: AttachmentRecord) => isAttached(now) && isOfLaterAdd(cached, now);
  const claim = claimRecord({ stateDir, env: runtime.env }, record, isStale, 'repair');
  if (claim && 'drop' in claim) claim.drop();
}

/** containerd records its loopback as an attachment. */
const LOOPBACK = 'lo';
const DELETED = 'its runtime has just deleted it';

function idOf({ network, containerId, ifname }: AttachmentId): AttachmentId {
  return { network, containerId, ifname };
}

function skipped(id: AttachmentId, why: string): AttachmentCondition {
  return { ...idOf(id), state: 'skipped', why, links: [] };
}

function broken(id: AttachmentId, error: unknown): AttachmentCondition {
  return { ...idOf(id), state: 'broken', why: toCniError(error).message, links: [] };
}

async function repairClaimed(
  stateDir: string,
  seen: AttachmentRecord,
  scope: RepairScope,
  runtime: ChainRuntime,
): Promise<AttachmentCondition> {
  const { network, containerId, ifname } = seen;
  const id = { network, containerId, ifname };
  const now = findRecord(id, { ...runtime, stateDir }) ?? seen;
  const list = listToRepairBy(now, runtime);
  if (typeof list === 'string') return skipped(id, list);
  if (scope.dryRun) return await examineRecorded(list, now, scope, runtime).catch(error => broken(id, error));
  let claim: Claim | undefined;
  try {
    if (await forgetIfDetached(stateDir, now, runtime)) return skipped(id, DELETED);
    // The claim keeps a repair and a DEL or change of the same attachment from running at the same time.
    const place = { stateDir, env: runtime.env };
    const won = claimRecord(place, id, isAttached, 'repair', deadlineOf(runtime, 'CHECK'));
    if (won === undefined) return skipped(id, 'it has just been deleted');
    if ('holder' in won) return skipped(id, `process ${won.holder.pid} is working on it`);
    claim = won;
    // What the plugins of a dead repair still put back would be found twice.
    await waitForOrphanProcesses(claim, { ...runtime, cacheDir: claim.record.cacheDir });
    const record = await settled(claim, stateDir, runtime);
    const listNow = listToRepairBy(record, runtime);
    if (typeof listNow === 'string') return skipped(id, listNow);
    const condition = await examineRecorded(listNow, record, scope, runtime);
    // What its own runtime keeps of an adopted one tells whether that runtime has deleted it.
    const isOurs = record.adopted !== true;
    const cacheWritten =
      isOurs &&
      condition.state !== 'broken' &&
      ensureCached(record, { ...runtime, cacheDir: record.cacheDir });
    return { ...condition, ...(cacheWritten ? { cacheWritten } : {}) };
  } catch (error) {
    return broken(id, error);
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

function isAttached({ phase }: AttachmentRecord): boolean {
  return phase === 'attached';
}

/** The configuration that the plugins of an attachment are called with, or why they cannot be called. */
function listToRepairBy(record: AttachmentRecord, runtime: ChainRuntime): Conflist | string {
  const { netns, cacheDir } = record;
  const { onWarning: _, ...quiet } = runtime;
  const list = findConfigOfAdd(toRemembered(record), runtime);
  if (isOfLaterAdd(findCached(record, { ...quiet, cacheDir }), record))
    return 'another runtime has since attached it again';
  if (isElsewhere(record, runtime.env)) return ELSEWHERE;
  const place = compareNetns(netns, record);
  if (place === 'gone') return `its namespace "${netns}" no longer exists; DEL deletes it`;
  if (place === 'other') return `"${netns}" is no longer the namespace of its ADD; DEL deletes it`;
  const usable = listToCheckBy(list);
  return 'why' in usable ? usable.why : usable;
}

/** The same, as far as the configuration tells. `unchecked`: nothing but another list would change that. */
export function listToCheckBy(
  list: Conflist | undefined,
): Conflist | { readonly why: string; readonly unchecked?: true } {
  if (list === undefined) return { why: 'its configuration cannot be used' };
  if (list.disableCheck) return { why: 'its list sets "disableCheck"', unchecked: true };
  if (atLeast(list.version, SINCE.check)) return list;
  return { why: `its list has version ${list.version}, which has no CHECK`, unchecked: true };
}

/** cnitool and others read the cached result. */
function ensureCached(record: AttachmentRecord, runtime: ChainRuntime): boolean {
  if (findCached(record, runtime) !== undefined) return false;
  writeAttachment(record.cacheDir, toRemembered(record));
  return true;
}
