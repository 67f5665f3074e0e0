// Which attachments of a network are garbage, and how is it collected while others add attachments to the network?
//
// attachments/README.md, "GC while ADDs run", says how it knows what existed when it began. Within a process, operations wait while plugins
// collect (turns.ts).

import { FILE_CLOCK_LAG_MS, hasBegunSince, takeSnapshot } from '../../attachments/snapshot.ts';
import {
  addedAt,
  type KnownAttachment,
  lifeOf,
  listAttachments,
  pastOf,
  sweep,
} from '../../attachments/store.ts';
import { type AttachmentId, findContainerIdProblem } from '../../cni/attachment.ts';
import { cacheDirOf, runDir } from '../../cni/directories.ts';
import { SNAPSHOT_VARIABLE } from '../../cni/env.ts';
import { type CniError, invalidConfig } from '../../cni/errors.ts';
import { defined, type JsonObject } from '../../cni/json.ts';
import { atLeast, SINCE } from '../../cni/result.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import { findIfnameProblem } from '../../net/interface.ts';
import { type Conflist, listUses, type PluginEntry } from '../config/conflist.ts';
import { isOwnPlugin } from '../config/find-plugin.ts';
import { buildGcRequest, callPlugins, joinErrors } from '../run/call-plugins.ts';
import { deleteNetwork } from '../run/run.ts';
import type { ChainRuntime, FindHeld, HeldAttachment } from '../run/runtime.ts';
import { listRunning, withNoneBegun } from '../run/turns.ts';
import { deleteUnsettled } from './recover.ts';

type ValidKeys = readonly AttachmentKey[];

/**
 * Which attachments GC keeps: those listed, or none. It is required, so it cannot be left out by accident. With an owner,
 * attachments that the journal says another runner made are kept too. A function is called for the list after the records were
 * read. A caller with higher-level records, written before these, then has an entry for every record.
 */
export type GcScope = ({ readonly valid: ValidKeys | (() => ValidKeys) } | { readonly all: true }) & {
  readonly owner?: string;
  /**
   * When GC was requested, in milliseconds since the epoch; the moment of the call unless given (a command needs some time to
   * start). Attachments begun since are kept, because the caller's list cannot name them.
   */
  readonly since?: number;
  /**
   * Finds what the node holds of attachments to the network, whichever runtime recorded them. Without it, only the plugins look
   * for leaks, and they treat everything that is not recorded here as leaked.
   */
  readonly look?: FindHeld;
  /** Also collect attachments without a record here, even if they look in use. */
  readonly unrecorded?: boolean;
};

/** An attachment found by GC. */
export interface GarbageCandidate
  extends AttachmentId,
    Pick<KnownAttachment, 'netns' | 'args' | 'capabilityArgs' | 'source'> {
  /** Why it is deleted or kept, regardless of the scope; undefined when the scope decides. */
  readonly why?: string;
  /** What the node holds of it, human-readable; empty if GC did not look. */
  readonly traces?: readonly string[];
  /** Distinguishes this attachment from a later one of the same name; undefined without a record. */
  readonly life?: string;
}

/** What GC does to a network. */
export interface GarbagePlan {
  readonly network: string;
  /** Why nothing at all is done: the list says `disableGC`. */
  readonly disabled: boolean;
  /** Attachments that get DEL: not in the scope, begun and never completed, or neither recorded anywhere nor in use. */
  readonly stale: readonly GarbageCandidate[];
  /** Attachments that are kept: named by the scope, being worked on, or another runner's. */
  readonly kept: readonly GarbageCandidate[];
  /** Leaks that name no container that DEL could be called for. The plugins' GC decides about them. */
  readonly unnamed: readonly HeldAttachment[];
  /**
   * Plugins that get GC with the list of valid attachments, in order. In a list before 1.1.0 these are only our own executables,
   * which support GC anyway: they find the leaks that another implementation's DEL missed.
   */
  readonly plugins: readonly string[];
  /** The valid attachments that GC names to the plugins: those in the scope, and the others that are kept. */
  readonly valid: readonly AttachmentKey[];
  /** Records of this network that cannot be read. They may not be garbage, so they are kept. */
  readonly damaged: readonly CniError[];
}

/** Where attachments are recorded, and where plugins are found. */
type GarbagePlace = Pick<ChainRuntime, 'cacheDir' | 'stateDir' | 'env'> &
  Partial<Pick<ChainRuntime, 'pluginDirs' | 'find' | 'isOwn'>>;

/**
 * Deletes every recorded attachment of the network that is not valid, with the configuration of its own ADD. Then lets each
 * plugin (from 1.1.0 on; our own always) collect what it finds. Continues after errors. Attachments begun after the call are
 * left alone, whichever process begins them. With a list of valid attachments, so are those being attached at that moment,
 * which no list can name yet.
 * @returns what was done
 * @throws CniError 7 without a scope; else one that joins what failed
 */
export async function collectGarbage(
  list: Conflist,
  scope: GcScope,
  runtime: ChainRuntime,
): Promise<GarbagePlan> {
  const snapshot = list.disableGC ? undefined : takeSnapshot(runDir(runtime.env), list.name, scope.since);
  try {
    const plan = planGarbage(list, scope, runtime);
    const env = { ...(runtime.env ?? process.env), [SNAPSHOT_VARIABLE]: snapshot?.path };
    return await collect({ list, scope, snapshot, runtime: { ...runtime, env } }, plan);
  } finally {
    snapshot?.remove();
  }
}

interface Run {
  readonly list: Conflist;
  readonly scope: GcScope;
  readonly snapshot: ReturnType<typeof takeSnapshot>;
  readonly runtime: ChainRuntime;
}

async function collect(run: Run, plan: GarbagePlan): Promise<GarbagePlan> {
  const { list, runtime } = run;
  for (const problem of plan.damaged) runtime.onWarning?.(problem);
  sweep({ stateDir: undefined, ...runtime, cacheDir: cacheDirOf(runtime) }, 'all', list.name);
  const errors: unknown[] = [];
  for (const stale of plan.stale) {
    await removeStale(run, stale).catch((error: unknown) => {
      const what = `Cannot delete stale attachment "${stale.containerId}" "${stale.ifname}"`;
      errors.push(new Error(what, { cause: error }));
    });
  }
  if (!plan.disabled) await withNoneBegun(list.name, runtime, () => callCollectors(run, plan, errors));
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${list.name}"`, errors);
  return plan;
}

async function removeStale(run: Run, stale: GarbageCandidate): Promise<void> {
  const { list, runtime } = run;
  const isUnsettled = stale.why !== undefined && stale.source !== '';
  if (isUnsettled) {
    await deleteUnsettled(stale, runtime);
    return;
  }
  const isStill = (life: string) => life === (stale.life ?? '') && !hasBegunAgain(run, stale);
  await deleteNetwork(list, stale, runtime, isStill);
}

/** Whether an ADD of it has begun since GC did. */
function hasBegunAgain({ snapshot: taken, runtime }: Run, one: GarbageCandidate): boolean {
  return taken !== undefined && hasBegunSince(taken.snapshot, runDir(runtime.env), one);
}

async function callCollectors(run: Run, plan: GarbagePlan, errors: unknown[]): Promise<void> {
  const { list, scope, runtime } = run;
  const again = planGarbage(list, scope, runtime);
  const collectors = mayCallPlugins(again.unnamed) ? collectorsOf(list, runtime) : [];
  if (!collectors.length) return;
  const valid = new Map<string, AttachmentKey>();
  const keep = (keys: readonly AttachmentKey[]) => {
    for (const key of keys) valid.set(keyOf(key), key);
  };
  keep(validNow(run, plan, again));
  keep(listRunning(list.name, runtime));
  const { look: _, ...recorded } = scope;
  const asked = atLeast(list.version, SINCE.gc) ? list : { ...list, version: SINCE.gc };
  // A foreign plugin does not know generations, and the plugins before it may have taken long.
  let isOld = false;
  const requestFor = (index: number): JsonObject => {
    if (isOld) {
      const later = planGarbage(list, recorded, runtime);
      keep(validNow(run, plan, later));
      isOld = false;
    }
    return buildGcRequest(asked, asked.plugins[index] as PluginEntry, [...valid.values()]);
  };
  const call = { list: asked, verb: 'GC', order: collectors, requestFor } as const;
  for await (const reply of callPlugins(call, runtime)) {
    isOld = true;
    if ('error' in reply) errors.push(reply.error);
  }
}

/**
 * The attachments that a later plan names to plugins as valid: those that it keeps, and those that the first plan did not have
 * or had as an earlier attachment of the same name. Exception: what our own DEL left of a stale attachment has no record and
 * may look in use, but it stays stale.
 */
function validNow(run: Run, first: GarbagePlan, later: GarbagePlan): AttachmentKey[] {
  const lives = new Map(first.stale.map(one => [idText(one), one.life]));
  const isRemains = (one: GarbageCandidate) =>
    one.life === undefined && lives.has(idText(one)) && !hasBegunAgain(run, one);
  const isOld = (one: GarbageCandidate): boolean => {
    const key = idText(one);
    return lives.has(key) && lives.get(key) === one.life;
  };
  const remains = new Set(later.kept.filter(isRemains).map(one => idText(one)));
  return [
    ...later.valid.filter(key => !remains.has(keyOf(key))),
    ...later.stale.filter(one => !isOld(one)).map(toKey),
  ];
}

/** As GC names it to plugins. */
export function toKey({ containerId, ifname }: Pick<AttachmentId, 'containerId' | 'ifname'>): AttachmentKey {
  return { containerID: containerId, ifname };
}

/**
 * What {@link collectGarbage} would do now. Nothing is changed and no plugin is called.
 * @throws CniError 7 without a scope, 5 when cache or journal cannot be listed
 */
export function planGarbage(list: Conflist, scope: GcScope, place: GarbagePlace): GarbagePlan {
  if (list.disableGC) {
    const nothing = { stale: [], kept: [], unnamed: [], plugins: [], damaged: [] };
    return { network: list.name, disabled: true, valid: validOf(scope), ...nothing };
  }
  const recorded = findAll(list.name, scope, place);
  const valid = validOf(scope);
  const named = new Set(valid.map(keyOf));
  const { found, unnamed } = withTraces(list, recorded.found, valid, scope);
  const stays = (one: JudgedCandidate) => one.stays ?? named.has(idText(one));
  const collectors = mayCallPlugins(unnamed) ? collectorsOf(list, place) : [];
  const kept = found.filter(stays);
  return {
    network: list.name,
    disabled: false,
    stale: found.filter(one => !stays(one)),
    kept,
    unnamed,
    plugins: collectors.map(index => list.plugins[index]?.type ?? ''),
    valid: [...valid, ...kept.map(toKey).filter(key => !named.has(keyOf(key)))],
    damaged: recorded.damaged,
  };
}

/** Whether plugins may get GC. They would delete resources in use that the list of valid attachments cannot name. */
function mayCallPlugins(unnamed: readonly HeldAttachment[]): boolean {
  return !unnamed.some(({ inUse }) => inUse);
}

/** Indexes of the plugins that get GC; in an older list only ours, if everything that they delegate to is ours too. */
function collectorsOf(list: Conflist, { pluginDirs = [], find, isOwn }: GarbagePlace): number[] {
  const all = [...list.plugins.keys()];
  if (atLeast(list.version, SINCE.gc)) return all;
  const uses = listUses(list);
  // A missing plugin gets no GC.
  const isOurs = (type: string) => isOwnPlugin(type, { pluginDirs, ...defined({ find }) }, isOwn);
  return all.filter(index => uses.every(use => use.index !== index || isOurs(use.type)));
}

/** An attachment, and whether it is kept regardless of the scope. */
interface JudgedCandidate extends GarbageCandidate {
  readonly stays?: boolean;
}

/** All attachments in journal and cache, each once. */
function findAll(
  network: string,
  scope: GcScope,
  place: GarbagePlace,
): { found: readonly JudgedCandidate[]; damaged: readonly CniError[] } {
  const journals = place.stateDir === undefined ? [] : [place.stateDir];
  const { attachments, damaged } = listAttachments({ cacheDir: cacheDirOf(place), journals }, { network });
  const found = new Map<string, JudgedCandidate>();
  for (const one of attachments) {
    found.set(idText(one), { ...one, ...judge(one, scope, place.env), life: lifeOf(one) });
  }
  const sorted = [...found.values()].sort((a, b) => (idText(a) < idText(b) ? -1 : 1));
  return { found: sorted, damaged };
}

/** Adds what the node holds of recorded attachments, and of unrecorded ones. */
function withTraces(
  list: Conflist,
  recorded: readonly JudgedCandidate[],
  valid: readonly AttachmentKey[],
  { look, unrecorded = false }: GcScope,
): { found: readonly JudgedCandidate[]; unnamed: readonly HeldAttachment[] } {
  if (look === undefined) return { found: recorded, unnamed: [] };
  const named = new Set(valid.map(keyOf));
  const onRecord = new Set(recorded.map(idText));
  const traced = look(list, [...valid, ...recorded.map(toKey)]);
  const tracesOf = new Map(traced.map(one => [idText(one), one.traces]));
  const withoutRecord = traced.flatMap((one): JudgedCandidate[] => {
    const { containerId, ifname, isNamed, traces, inUse } = one;
    const key = idText(one);
    if (!isNamed || onRecord.has(key) || named.has(key)) return [];
    const id = { network: list.name, containerId, ifname, netns: '', args: [], capabilityArgs: {} };
    const stays = inUse !== undefined && !unrecorded;
    const why = `it has no record here and ${stays ? `may be in use (${inUse})` : inUse === undefined ? 'is unused' : 'may be in use, but all unrecorded attachments are deleted'}`;
    return [{ ...id, source: '', stays, why, traces }];
  });
  const withOwn = recorded.map(one => ({ ...one, traces: tracesOf.get(idText(one)) ?? [] }));
  return { found: [...withOwn, ...withoutRecord], unnamed: traced.filter(({ isNamed }) => !isNamed) };
}

function judge(
  one: KnownAttachment,
  { owner, since }: GcScope,
  env: ChainRuntime['env'],
): Pick<JudgedCandidate, 'stays' | 'why'> {
  const isOurs = one.stateDir !== undefined;
  const { kind, why, holder } = pastOf(one, env);
  if (holder) return { stays: true, why: `process ${holder.pid} is working on it` };
  if (kind === 'elsewhere') return { stays: true, why: why ?? '' };
  if (isOurs && owner !== undefined && one.owner !== owner)
    return { stays: true, why: `it belongs to "${one.owner}"` };
  if (why !== undefined) return { stays: false, why };
  // Nothing but the time of its entry says when another runtime's ADD with another's plugins was.
  const lag = isOurs ? 0 : FILE_CLOCK_LAG_MS;
  const isLater = since !== undefined && (addedAt(one) ?? 0) >= since - lag;
  return isLater ? { stays: true, why: 'it was added after GC began' } : {};
}

function idText(id: Pick<AttachmentId, 'containerId' | 'ifname'>): string {
  return keyOf(toKey(id));
}

function keyOf({ containerID, ifname }: AttachmentKey): string {
  return `${containerID}/${ifname}`;
}

/** The valid attachments of a scope, checked: a misspelt key would name none, and GC would delete what it was meant to keep. */
function validOf(scope: GcScope): readonly AttachmentKey[] {
  if ('all' in scope && scope.all === true && !('valid' in scope)) return [];
  const given: unknown = 'valid' in scope ? scope.valid : undefined;
  const valid: unknown = typeof given === 'function' ? given() : given;
  if (!Array.isArray(valid)) {
    throw invalidConfig('Cannot collect garbage: expected either the valid attachments or "all"');
  }
  for (const key of valid as readonly Partial<AttachmentKey>[]) {
    const { containerID = '', ifname = '' } = key ?? {};
    const problem = findContainerIdProblem(containerID) ?? findIfnameProblem(ifname);
    if (problem === undefined) continue;
    throw invalidConfig(`Cannot use valid attachment ${JSON.stringify(key)}: ${problem}`);
  }
  return valid;
}
