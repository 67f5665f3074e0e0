// How is the garbage of a network collected, while others add attachments to it?
//
// GC never waits for the operations of attachments, and these wait only while plugins collect (turns.ts). GC acts on what existed
// when it began: it takes a snapshot of the records and of the generations that plugins note of each ADD
// (attachments/generation.ts). Deleting stale attachments takes long, so each is checked again before it is deleted, and all of them
// before plugins are called. From the generations, plugins see what was begun later.
import { findGeneration } from '../../attachments/generation.ts';
import { SNAPSHOT_VARIABLE, type SnapshotFile, takeSnapshot } from '../../attachments/snapshot.ts';
import { type AttachmentRecord, lifeOf, sweep } from '../../attachments/store.ts';
import type { PluginEntry } from '../../cni/conflist.ts';
import { runDir } from '../../cni/directories.ts';
import type { JsonObject } from '../../cni/json.ts';
import { atLeast, SINCE } from '../../cni/result.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import type { Conflist } from '../config/conflist.ts';
import { buildGcRequest, callPlugins } from '../run/call-plugins.ts';
import { IGNORED, joinErrors } from '../run/plugin-outcome.ts';
import { deleteNetwork } from '../run/run.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { listRunning, withNoneBegun } from '../run/turns.ts';
import {
  collectorsOf,
  type GarbageCandidate,
  type GarbagePlan,
  type GcScope,
  keyOf,
  mayCallPlugins,
  planGarbage,
} from './garbage.ts';
import { findCached } from './known-add.ts';
import { deleteUnsettled } from './recover.ts';

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
  const { snapshot, plan } = begin(list, scope, runtime);
  try {
    const env = { ...(runtime.env ?? process.env), [SNAPSHOT_VARIABLE]: snapshot?.path };
    return await collect({ list, scope, snapshot, runtime: { ...runtime, env } }, plan);
  } finally {
    snapshot?.remove();
  }
}

function begin(
  list: Conflist,
  scope: GcScope,
  runtime: ChainRuntime,
): { readonly snapshot: SnapshotFile | undefined; readonly plan: GarbagePlan } {
  const snapshot = list.disableGC ? undefined : takeSnapshot(runDir(runtime.env), list.name, scope.since);
  try {
    return { snapshot, plan: planGarbage(list, scope, runtime) };
  } catch (error) {
    snapshot?.remove();
    throw error;
  }
}

/** One run of GC. */
interface Run {
  readonly list: Conflist;
  readonly scope: GcScope;
  readonly snapshot: SnapshotFile | undefined;
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

async function removeStale({ list, snapshot, runtime }: Run, stale: GarbageCandidate): Promise<void> {
  const isUnsettled = stale.why !== undefined && stale.source !== undefined;
  if (isUnsettled) {
    await deleteUnsettled(stale, runtime);
    return;
  }
  const { onWarning: _, ...quiet } = runtime;
  const dir = runDir(runtime.env);
  const id = { ...stale, network: list.name };
  const isStill = (record: AttachmentRecord | undefined): boolean => {
    const note = findGeneration(dir, id);
    if (note && snapshot && !snapshot.snapshot.tokens.has(note.token)) return false;
    const life = lifeOf(record, findCached(id, record ? { ...quiet, cacheDir: record.cacheDir } : quiet));
    return life === (stale.life ?? lifeOf(undefined, undefined));
  };
  await deleteNetwork(list, stale, runtime, isStill);
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
  const call = { list: asked, verb: 'GC', order: collectors, read: IGNORED, requestFor } as const;
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
function validNow({ snapshot, runtime }: Run, first: GarbagePlan, later: GarbagePlan): AttachmentKey[] {
  const lives = new Map(first.stale.map(one => [keyOf(toKey(one)), one.life]));
  const tokens = snapshot?.snapshot.tokens;
  const isRemains = (one: GarbageCandidate): boolean => {
    if (one.life !== undefined || !lives.has(keyOf(toKey(one)))) return false;
    const note = findGeneration(runDir(runtime.env), one);
    return note === undefined || tokens === undefined || tokens.has(note.token);
  };
  const isOld = (one: GarbageCandidate): boolean => {
    const key = keyOf(toKey(one));
    return lives.has(key) && lives.get(key) === one.life;
  };
  const remains = new Set(later.kept.filter(isRemains).map(one => keyOf(toKey(one))));
  return [
    ...later.valid.filter(key => !remains.has(keyOf(key))),
    ...later.stale.filter(one => !isOld(one)).map(toKey),
  ];
}

function toKey({ containerId, ifname }: GarbageCandidate): AttachmentKey {
  return { containerID: containerId, ifname };
}
