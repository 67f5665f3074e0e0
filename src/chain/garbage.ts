// Which attachments of a network are garbage, and how are they collected?

import { existsSync } from 'node:fs';
import type { PluginEntry } from '../cni/conflist.ts';
import { findContainerIdProblem } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { holderOf } from '../journal/claim.ts';
import { listMarked } from '../journal/marks.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { listRecords, unmark } from '../journal/store.ts';
import { findIfnameProblem } from '../net/ifname.ts';
import type { AttachmentId } from './cache-record.ts';
import type { Conflist } from './conflist.ts';
import { isOwnExecutable } from './find-plugin.ts';
import { chooseKnown, type Known, toKnown } from './known.ts';
import { joinErrors } from './link-errors.ts';
import { listUses } from './link-types.ts';
import { findExecutable, IGNORED, openLinks } from './links.ts';
import { findReason, takeDown } from './recover.ts';
import { buildGcRequest } from './request.ts';
import { listAttachments, sweepCache } from './result-cache.ts';
import { deleteNetwork } from './run.ts';
import { cacheDirOf, type Runtime } from './runtime.ts';
import type { Traced } from './traced.ts';
import { alone } from './turns.ts';

/**
 * Which attachments GC leaves: those listed, or none at all. Leaving it out is not possible by accident. With an owner,
 * what the journal says is somebody else's stays too.
 */
export type GcScope = ({ readonly valid: readonly AttachmentKey[] } | { readonly all: true }) & {
  readonly owner?: string;
  /**
   * What the node holds of attachments to the network, whoever has them on record. Without it, only links look for what
   * is left over, and take everything for it that is on no record here.
   */
  readonly look?: (list: Conflist, known: readonly AttachmentKey[]) => readonly Traced[];
  /** Take what is on no record here for left over also where it is in use. */
  readonly unrecorded?: boolean;
};

/** An attachment that GC has found. */
export interface Found extends Known {
  /** Why it goes, or stays, whatever the scope says; undefined when the scope decides. */
  readonly why?: string;
  /** What the node holds of it, each in words; none where nobody looked. */
  readonly traces?: readonly string[];
}

/** What GC does to a network. */
export interface GarbagePlan {
  readonly network: string;
  /** Why nothing at all is done: the list says `disableGC`. */
  readonly disabled: boolean;
  /** Attachments that get DEL: the scope does not name them, or they were cut off, or nobody has them on record or uses them. */
  readonly stale: readonly Found[];
  /** Attachments that stay: the scope names them, somebody works on them, or they are somebody else's. */
  readonly kept: readonly Found[];
  /** What names no container that DEL could be called for, and is in use or not: links' GC decides. */
  readonly unnamed: readonly Traced[];
  /**
   * Links that get GC with the list of what is valid, in order. In a list before 1.1.0 only our own executables, which know
   * the verb all the same: what somebody else's DEL did not know of is theirs to find.
   */
  readonly links: readonly string[];
  /** What GC tells them is valid: what the scope names, and what else stays. */
  readonly valid: readonly AttachmentKey[];
  /** Records of this network that cannot be read: nobody knows whether they are garbage, so they stay. */
  readonly damaged: readonly CniError[];
}

/** Where attachments are on record, and links. */
export type GarbagePlace = Pick<Runtime, 'cacheDir' | 'stateDir' | 'env'> &
  Partial<Pick<Runtime, 'pluginDirs' | 'find' | 'isOwn'>>;

/**
 * What {@link collectGarbage} would do now. Nothing is changed and no link is called.
 * @throws CniError 7 without a scope, 5 when cache or journal cannot be listed
 */
export function planGarbage(list: Conflist, scope: GcScope, place: GarbagePlace): GarbagePlan {
  const valid = validOf(scope);
  if (list.disableGC) {
    const nothing = { stale: [], kept: [], unnamed: [], links: [], damaged: [] };
    return { network: list.name, disabled: true, valid, ...nothing };
  }
  const recorded = findAll(list.name, scope, place);
  const named = new Set(valid.map(keyOf));
  const { found, unnamed } = withTraces(list, recorded.found, valid, scope);
  const stays = ({ stays, containerId, ifname }: Judged) =>
    stays ?? named.has(keyOf({ containerID: containerId, ifname }));
  const collectors = maySpeakOf(unnamed) ? collectorsOf(list, place) : [];
  const kept = found.filter(stays);
  const more = kept.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }));
  return {
    network: list.name,
    disabled: false,
    stale: found.filter(one => !stays(one)),
    kept,
    unnamed,
    links: collectors.map(index => list.plugins[index]?.type ?? ''),
    valid: [...valid, ...more.filter(key => !named.has(keyOf(key)))],
    damaged: recorded.damaged,
  };
}

/**
 * Deletes every attachment of the network on record that is not valid, with the configuration of its own ADD, then
 * lets each link (from 1.1.0 on, our own always) collect what it finds. Goes on after errors. Within this process nothing else runs
 * on the cache meanwhile.
 * @returns what was done
 * @throws CniError 7 without a scope; else one that joins what failed
 */
export function collectGarbage(list: Conflist, scope: GcScope, runtime: Runtime): Promise<GarbagePlan> {
  return alone(runtime, () => collect(list, scope, runtime));
}

async function collect(list: Conflist, scope: GcScope, runtime: Runtime): Promise<GarbagePlan> {
  const plan = planGarbage(list, scope, runtime);
  for (const problem of plan.damaged) runtime.onWarning?.(problem);
  sweep(list.name, runtime);
  const errors: unknown[] = [];
  for (const stale of plan.stale) {
    const isUnsettled = stale.why !== undefined && stale.source !== undefined;
    const gone = isUnsettled ? takeDown(stale, runtime) : deleteNetwork(list, stale, runtime);
    await gone.catch((error: unknown) => {
      const what = `Cannot delete stale attachment "${stale.containerId}" "${stale.ifname}"`;
      errors.push(new Error(what, { cause: error }));
    });
  }
  const collectors = plan.disabled || !maySpeakOf(plan.unnamed) ? [] : collectorsOf(list, runtime);
  if (collectors.length) {
    const asked = atLeast(list.version, SINCE.gc) ? list : { ...list, version: SINCE.gc };
    const links = openLinks(asked, 'GC', runtime, collectors, IGNORED);
    for (const index of collectors) {
      const entry = asked.plugins[index] as PluginEntry;
      await links.call(index, buildGcRequest(asked, entry, plan.valid)).catch(error => errors.push(error));
    }
    links.close();
  }
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${list.name}"`, errors);
  return plan;
}

/** A link would take for garbage what is in use and nobody can name to it. */
function maySpeakOf(unnamed: readonly Traced[]): boolean {
  return !unnamed.some(({ inUse }) => inUse);
}

/** Places of the links that get GC; of an older list those that are ours, with all that they call. */
function collectorsOf(
  list: Conflist,
  { pluginDirs = [], find, isOwn = isOwnExecutable }: GarbagePlace,
): number[] {
  const all = [...list.plugins.keys()];
  if (atLeast(list.version, SINCE.gc)) return all;
  const uses = listUses(list);
  const isOurs = (type: string) => {
    try {
      return isOwn(findExecutable(type, { pluginDirs, ...(find ? { find } : {}) }));
    } catch {
      // It is not there, and no GC is due to it.
      return false;
    }
  };
  return all.filter(index => uses.every(use => use.index !== index || isOurs(use.type)));
}

/** Removes half-written files of processes that are gone, and marks of records that they had removed. */
function sweep(network: string, { stateDir, ...runtime }: Runtime): void {
  sweepCache(cacheDirOf(runtime));
  if (stateDir === undefined) return;
  const gone = listMarked(stateDir, network).filter(({ file }) => !existsSync(file));
  for (const marked of gone) unmark(stateDir, marked);
}

/** An attachment, and whether it stays whatever the scope says. */
interface Judged extends Found {
  readonly stays?: boolean;
}

/** What journal and cache know of, each attachment once. */
function findAll(
  network: string,
  { owner }: GcScope,
  place: GarbagePlace,
): { found: readonly Judged[]; damaged: readonly CniError[] } {
  const { stateDir, env } = place;
  const cached = listAttachments(cacheDirOf(place), { network });
  const journal = stateDir === undefined ? { records: [], damaged: [] } : listRecords(stateDir, network);
  const found = new Map<string, Judged>(cached.attachments.map(one => [idText(one), one]));
  for (const record of journal.records) {
    const known = chooseKnown(record, found.get(idText(record)));
    found.set(idText(record), { ...(known ?? toKnown(record)), ...judge(record, owner, env) });
  }
  const sorted = [...found.values()].sort((a, b) => (idText(a) < idText(b) ? -1 : 1));
  return { found: sorted, damaged: [...cached.damaged, ...journal.damaged] };
}

/** What the node holds of what is on record, and of what is not. */
function withTraces(
  list: Conflist,
  recorded: readonly Judged[],
  valid: readonly AttachmentKey[],
  { look, unrecorded = false }: GcScope,
): { found: readonly Judged[]; unnamed: readonly Traced[] } {
  if (look === undefined) return { found: recorded, unnamed: [] };
  const named = new Set(valid.map(keyOf));
  const onRecord = new Set(recorded.map(idText));
  const known = recorded.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }));
  const traced = look(list, [...valid, ...known]);
  const tracesOf = new Map(traced.map(one => [idText({ ...one, network: list.name }), one.traces]));
  const orphans = traced.flatMap((one): Judged[] => {
    const { containerId, ifname, isNamed, traces, inUse } = one;
    const key = idText({ network: list.name, containerId, ifname });
    if (!isNamed || onRecord.has(key) || named.has(key)) return [];
    const id = { network: list.name, containerId, ifname, netns: '', args: [], capabilityArgs: {} };
    const stays = inUse !== undefined && !unrecorded;
    const why = `it is on no record here, and ${stays ? `somebody may use it (${inUse})` : inUse === undefined ? 'nobody uses it' : 'all of these are to go'}`;
    return [{ ...id, source: undefined, result: undefined, stays, why, traces }];
  });
  const withOwn = recorded.map(one => ({ ...one, traces: tracesOf.get(idText(one)) ?? [] }));
  return { found: [...withOwn, ...orphans], unnamed: traced.filter(({ isNamed }) => !isNamed) };
}

function judge(
  record: AttachmentRecord,
  owner: string | undefined,
  env: Runtime['env'],
): Pick<Judged, 'stays' | 'why'> {
  const holder = holderOf(record);
  if (holder) return { stays: true, why: `process ${holder.pid} works on it` };
  if (owner !== undefined && record.owner !== owner)
    return { stays: true, why: `it belongs to "${record.owner}"` };
  const why = findReason(record, env);
  return why === undefined ? {} : { stays: false, why };
}

function idText({ containerId, ifname }: AttachmentId): string {
  return keyOf({ containerID: containerId, ifname });
}

function keyOf({ containerID, ifname }: AttachmentKey): string {
  return `${containerID}/${ifname}`;
}

/** A key with a typing mistake would name nothing, and what it was meant to keep would be deleted. */
function validOf(scope: GcScope): readonly AttachmentKey[] {
  if ('all' in scope && scope.all === true && !('valid' in scope)) return [];
  const valid: unknown = 'valid' in scope ? scope.valid : undefined;
  if (!Array.isArray(valid)) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot collect garbage: neither the valid attachments are given nor that all are to go',
    );
  }
  for (const key of valid as readonly Partial<AttachmentKey>[]) {
    const { containerID = '', ifname = '' } = key ?? {};
    const problem = findContainerIdProblem(containerID) ?? findIfnameProblem(ifname);
    if (problem === undefined) continue;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use valid attachment ${JSON.stringify(key)}: ${problem}`,
    );
  }
  return valid;
}
