// What have the plugins of attachments lost behind their backs, and what of it can they put back?

import { type KnownAttachment, listAttachments, pastOf, tryHold } from '../../attachments/store.ts';
import { type AttachmentId, keyOf, toId } from '../../cni/attachment.ts';
import { cacheDirOf } from '../../cni/directories.ts';
import { REPAIR_VARIABLE } from '../../cni/env.ts';
import { type CniError, toCniError } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { type PutBack, settleHeld } from '../change.ts';
import type { Conflist } from '../config/conflist.ts';
import { callAll } from '../run/call-plugins.ts';
import { listToCheckBy } from '../run/run.ts';
import { type ChainRuntime, hasItsInterface, holdCall, withRecordedDirs } from '../run/runtime.ts';
import { inTurn } from '../run/turns.ts';
import { type Rest, visitAll } from '../run/visits.ts';
import { JUST_DELETED, noteOf, undoIfDeleted } from './foreign.ts';
import { findCached, findConfigOfAdd, findRecord, LOOPBACK } from './known-add.ts';
import { type Recovery, recover } from './recover.ts';

interface RepairMeans {
  /** Change nothing: plugins get CHECK only. */
  readonly dryRun?: boolean;
  /**
   * Run ADD again for chained plugins that do not support repair. Most of them only add rules, but only the person who chose
   * a plugin knows what it does.
   */
  readonly foreign?: boolean;
}

export interface RepairScope extends RepairMeans {
  /** Every network unless given. */
  readonly network?: string;
  /** Further state directories whose attachments are repaired: those of the delegate runner. */
  readonly journals?: readonly string[];
  /** Names of attachments that are repaired in parts, each of which has a record of its own. */
  readonly inParts?: ReadonlySet<string>;
}

export interface PluginCondition {
  readonly type: string;
  readonly index: number;
  /** `sound`: CHECK passes. `mended`: CHECK passes after something was put back. `broken`: CHECK fails. */
  readonly state: 'sound' | 'mended' | 'broken';
  /** What CHECK reported first. */
  readonly problem?: string;
  /** What CHECK still reports. */
  readonly error?: CniError;
}

export interface AttachmentCondition extends AttachmentId {
  /** `skipped`: its plugins were not called, or not all of them. */
  readonly state: PluginCondition['state'] | 'skipped';
  /** Why it was skipped, or why none of its plugins could be called. */
  readonly why?: string;
  readonly plugins: readonly PluginCondition[];
}

export interface RepairReport {
  /** Attachments that had to be deleted: crashed operations and failed DELs. */
  readonly recovered: readonly Recovery[];
  readonly attachments: readonly AttachmentCondition[];
  /** Records and cached results that cannot be read. */
  readonly damaged: readonly CniError[];
}

/**
 * Deletes unsettled attachments. Then, for every attachment in journal and cache, every plugin checks its part and, if that fails, puts
 * back what is missing: rules, elements, host addresses, traffic control, sysctls, leases. The container's interface stays, and
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
  const { attachments, damaged } = listAttachments(places, defined({ network }));
  if (dryRun) recovered.push(...attachments.flatMap(one => findRecovery(one, runtime)));
  const isChosen = (one: KnownAttachment): boolean => {
    const { stands, toDelete } = pastOf(one, runtime.env);
    if (one.stateDir !== undefined) return stands && toDelete === undefined;
    return inParts?.has(keyOf(one)) !== true && one.netns !== '' && one.ifname !== LOOPBACK;
  };
  const chosen = attachments.filter(isChosen);
  const limits = {
    groupOf: (one: KnownAttachment) => one.network,
    signal: runtime.signal,
    instead: (one: KnownAttachment) => skipped(one, INTERRUPTED),
  };
  const conditions = await visitAll(chosen, limits, (one, rest) =>
    repairOne(one, scope, runtime, undefined, rest),
  );
  return { recovered, attachments: conditions, damaged };
}

/**
 * What a repair would delete: the attachment, or nothing.
 * @param other reason to, if nothing on record is one
 */
export function findRecovery(
  one: KnownAttachment,
  { env }: Pick<ChainRuntime, 'env'>,
  other?: string,
): Recovery[] {
  const why = pastOf(one, env).toDelete ?? other;
  return why === undefined ? [] : [{ ...toId(one), why }];
}

/**
 * Repairs one attachment. Never throws.
 * @param one settled and of this boot, as the caller read it; `catena set` may have changed it since, and may until it is locked
 * @param note of its ADD by another runtime, if it was read earlier: a DEL removes it
 * @param rest waits until a DEL by that runtime has ended, if one has begun
 */
export async function repairOne(
  one: KnownAttachment,
  scope: RepairScope,
  runtime: ChainRuntime,
  note = noteOf(one, runtime),
  rest?: Rest,
): Promise<AttachmentCondition> {
  const broken = (error: unknown): AttachmentCondition => {
    return { ...toId(one), state: 'broken', why: toCniError(error).message, plugins: [] };
  };
  const work: Work = { known: one };
  const repairIt = () => repairHeld(one, scope, runtime, work);
  if (one.stateDir !== undefined) return repairIt().catch(broken);
  try {
    const condition = await inTurn(one, runtime, repairIt).catch(broken);
    if (work.begun === undefined || scope.dryRun) return condition;
    const isDeleted = await undoIfDeleted(work.known, note, runtime, work.begun, rest);
    return isDeleted ? skipped(one, JUST_DELETED) : condition;
  } catch (error) {
    return broken(error);
  }
}

const INTERRUPTED = 'the repair was interrupted';

interface Work extends PutBack {
  /** What its plugins are called with: a change may have ended since it was read. */
  known: KnownAttachment;
}

function skipped(id: AttachmentId, why: string): AttachmentCondition {
  return { ...toId(id), state: 'skipped', why, plugins: [] };
}

/** A repair and a DEL or change of the same attachment do not run at the same time. */
async function repairHeld(
  seen: KnownAttachment,
  scope: RepairScope,
  runtime: ChainRuntime,
  work: Work,
): Promise<AttachmentCondition> {
  const isRecorded = seen.stateDir !== undefined;
  const own = isRecorded ? { ...runtime, stateDir: seen.stateDir } : runtime;
  const held = scope.dryRun ? undefined : tryHold(seen, holdCall(own, 'repair'));
  if (held && 'holder' in held) return skipped(seen, `process ${held.holder.pid} is working on it`);
  try {
    let record = held ? held.record : isRecorded ? (findRecord(seen, own) ?? seen) : undefined;
    if (record ? !pastOf(record, own.env).stands : isRecorded)
      return skipped(seen, 'it has just been deleted');
    const reaching = record ? withRecordedDirs(own, record) : own;
    if (record) {
      const list = listToRepairBy(record, reaching);
      if (typeof list === 'string') return skipped(seen, list);
    }
    if (held) {
      // What the plugins of a dead repair still put back would be found twice.
      await held.awaitOrphans();
      if (held.known) record = (await settleHeld(held.known, own, work)) ?? held.record;
    }
    const known = (isRecorded ? record : undefined) ?? findCached(seen, own);
    if (known === undefined) return skipped(seen, JUST_DELETED);
    work.known = known;
    const list = listToRepairBy(known, reaching);
    if (typeof list === 'string') return skipped(seen, list);
    // Nothing is put back for what may be another container's.
    const dryRun = scope.dryRun || (!isRecorded && !(await hasItsInterface(known, own)));
    const begun = performance.now();
    const plugins = await repairPlugins(list, known, { ...scope, dryRun }, reaching);
    if (plugins.some(({ state }) => state !== 'sound')) work.begun ??= begun;
    if (runtime.signal?.aborted) {
      // A CHECK that was ended says nothing of its plugin.
      const told = plugins.filter(({ error }) => error?.plugin?.ended !== 'interrupt');
      return { ...skipped(seen, INTERRUPTED), plugins: told };
    }
    const isAny = (state: PluginCondition['state']) => plugins.some(one => one.state === state);
    return {
      ...toId(seen),
      state: isAny('broken') ? 'broken' : isAny('mended') ? 'mended' : 'sound',
      plugins,
    };
  } finally {
    held?.release();
  }
}

/** The configuration that the plugins of an attachment are called with, or why they cannot be called. */
function listToRepairBy(known: KnownAttachment, runtime: ChainRuntime): Conflist | string {
  const { netns } = known;
  const past = pastOf(known, runtime.env);
  if (past.kind === 'elsewhere') return past.why ?? '';
  if (netns === '') return 'its cached result names no namespace';
  const place = past.netns();
  if (place === 'gone') return `its namespace "${netns}" no longer exists; DEL deletes it`;
  if (place === 'other') return `"${netns}" is no longer the namespace of its ADD; DEL deletes it`;
  const list = listToCheckBy(findConfigOfAdd(known, runtime), runtime);
  return 'why' in list ? list.why : list;
}

/** Has every plugin check its part and, if that fails, put back what is missing. */
async function repairPlugins(
  list: Conflist,
  attachment: KnownAttachment,
  means: RepairMeans,
  runtime: ChainRuntime,
): Promise<PluginCondition[]> {
  const { result } = attachment;
  const prevResult = result && convertResult(result, list.version, 'recorded result');
  const repairing = { ...runtime, env: { ...(runtime.env ?? process.env), [REPAIR_VARIABLE]: '1' } };
  const plugins: PluginCondition[] = [];
  for (const [index, entry] of list.plugins.entries()) {
    const one = { list, order: [index], attachment, prevResult } as const;
    const again = { ...attachment, ...defined({ prevResult }) };
    const call = (how: ChainRuntime) => () => callAll({ ...one, verb: 'CHECK' }, how);
    const addAgain = async () => {
      await callAll({ ...one, verb: 'ADD', attachment: again }, runtime);
      await call(runtime)();
    };
    const plugin = { type: entry.type, index };
    const problem = await failureOf(call(runtime));
    if (problem === undefined) {
      plugins.push({ ...plugin, state: 'sound' });
      continue;
    }
    let error: CniError | undefined = problem;
    // The other plugins would put back rules for an interface that does not exist.
    const isLost = means.dryRun || plugins[0]?.state === 'broken';
    if (!isLost) error = await failureOf(call(repairing));
    // The ADD of a first plugin would create a second interface.
    if (error && means.foreign && !isLost && index > 0) error = await failureOf(addAgain);
    const found = { problem: problem.message, ...(error ? { error } : {}) };
    plugins.push({ ...plugin, state: error ? 'broken' : 'mended', ...found });
  }
  return plugins;
}

function failureOf(work: () => Promise<void>): Promise<CniError | undefined> {
  return work().then(() => undefined, toCniError);
}
