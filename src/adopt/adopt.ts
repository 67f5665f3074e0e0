// Which attachments of other runtimes exist, and how do they get into the journal?

import { parseFrozen } from '../chain/config/conflist.ts';
import { forgetDetached } from '../chain/records/adopted-attachments.ts';
import type { CachedAttachment } from '../chain/records/cache-record.ts';
import { renderAttachment } from '../chain/records/cache-record.ts';
import { noteOf } from '../chain/records/others-del.ts';
import { toRemembered } from '../chain/records/remembered-add.ts';
import { listAttachments, readAttachment } from '../chain/records/result-cache.ts';
import { findExecutable } from '../chain/run/call-plugins.ts';
import { cacheDirOf, checkAttachment, type Runtime } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { defined } from '../cni/defined.ts';
import { type CniError, toCniError } from '../cni/errors.ts';
import { parseResult } from '../cni/result.ts';
import { bootId } from '../files/boot-id.ts';
import { takeLock } from '../journal/lock.ts';
import { identifyNetns } from '../journal/netns-identity.ts';
import type { Intent, Line } from '../journal/record.ts';
import type { Runner } from '../journal/runner.ts';
import { holderOf } from '../journal/runner.ts';
import { dropRecord, readRecord, replaceRecord } from '../journal/store.ts';
import { findInterfaceProblem } from './interface.ts';

/** What to adopt. */
export interface AdoptScope {
  /** Every network unless given. */
  readonly network?: string;
  /** Change nothing. */
  readonly dryRun?: boolean;
  /** Further journals whose attachments are already on record: those of the delegate runner. */
  readonly alsoIn?: readonly string[];
}

/** The outcome for one attachment of libcni's cache. */
export interface Adoption extends AttachmentId {
  /** `adopted`: it has a record now. `known`: it already had one with the same content. `skipped`: it gets none. */
  readonly state: 'adopted' | 'known' | 'skipped';
  /** Why it was skipped. */
  readonly why?: string;
}

/** The outcome for all attachments of libcni's cache. */
export interface AdoptReport {
  readonly attachments: readonly Adoption[];
  /** Adopted earlier, and deleted since by their own runtime: their records are dropped. */
  readonly forgotten: readonly AttachmentId[];
  /** Unreadable files of the cache. */
  readonly damaged: readonly CniError[];
}

/**
 * Writes a record for every attachment of libcni's cache that exists in the kernel: its namespace has the interface, with the
 * hardware address that ADD reported. Configuration, arguments and result are those of its ADD; executables are those
 * found now. Drops records of attachments adopted earlier that their runtime has detached since. No plugin is called and nothing
 * in the kernel changes.
 * @throws CniError 5 when the cache cannot be listed
 */
export async function adopt(scope: AdoptScope, runtime: Runtime): Promise<AdoptReport> {
  const { network, dryRun = false } = scope;
  const { stateDir } = runtime;
  const filter = defined({ network });
  const forgotten = dryRun || stateDir === undefined ? [] : await forgetDetached(stateDir, network, runtime);
  const { attachments, damaged } = listAttachments(cacheDirOf(runtime), filter);
  const adoptions: Adoption[] = [];
  for (const cached of attachments) {
    if (runtime.signal?.aborted) break;
    // It calls no plugin, so it takes no turn: a record that is being worked on is left alone.
    adoptions.push(adoptOne(cached, scope, runtime));
  }
  return { attachments: adoptions, forgotten, damaged };
}

function adoptOne(cached: CachedAttachment, { dryRun, alsoIn = [] }: AdoptScope, runtime: Runtime): Adoption {
  const { network, containerId, ifname } = cached;
  const id = { network, containerId, ifname };
  const { stateDir } = runtime;
  if (stateDir === undefined) return { ...id, state: 'skipped', why: 'no journal is configured' };
  let release = () => {};
  try {
    const lock = takeLock({ stateDir, env: runtime.env }, id, 'repair');
    if ('holder' in lock)
      return { ...id, state: 'skipped', why: `process ${lock.holder.pid} is working on it` };
    release = lock.release;
    for (const journal of [stateDir, ...alsoIn]) {
      const record = readRecord(journal, id);
      if (record === undefined) continue;
      const isSame = renderAttachment(toRemembered(record)) === renderAttachment(cached);
      if (record.phase === 'attached' && isSame) return { ...id, state: 'known' };
      const holder = holderOf(record);
      if (holder) return { ...id, state: 'skipped', why: `process ${holder.pid} is working on it` };
      // That record has to be undone, and the cache does not contain what it says.
      if (record.phase !== 'attached' || journal !== stateDir)
        return { ...id, state: 'skipped', why: 'another ADD is on record: see catena ls --unsettled' };
    }
    const wanted = inquire(cached, runtime);
    if (typeof wanted === 'string') return { ...id, state: 'skipped', why: wanted };
    if (!dryRun && !writeRecord(stateDir, cached, { ...wanted, runner: lock.runner }, runtime))
      return { ...id, state: 'skipped', why: 'it has just been deleted or added again' };
    return { ...id, state: 'adopted' };
  } catch (thrown) {
    return { ...id, state: 'skipped', why: toCniError(thrown).message };
  } finally {
    release();
  }
}

/** What a record needs in addition to the cached result. */
interface Findings {
  readonly links: number;
  readonly executables: readonly string[];
}

/** Why there is nothing to adopt, or what the record needs. @throws CniError for an unusable configuration or result */
function inquire(cached: CachedAttachment, runtime: Runtime): Findings | string {
  const { network, netns, ifname, source, result } = cached;
  if (source === undefined) return 'its cached result was written by libcni 0.7 and has no configuration';
  if (result === undefined) return 'its cache entry has no result';
  if (netns === '') return 'its cache entry names no network namespace';
  checkAttachment(cached, 'CHECK');
  const list = parseFrozen(source);
  if (list.name !== network) return `its configuration is for network "${list.name}"`;
  const problem = findInterfaceProblem(netns, ifname, parseResult(result, list.version, 'cached result'));
  if (problem !== undefined) return `${problem}; DEL deletes it`;
  return {
    links: list.plugins.length,
    executables: list.plugins.map(({ type }) => findExecutable(type, runtime)),
  };
}

/** @returns whether the cached result is still the same afterwards: other runtimes do not know our records */
function writeRecord(
  stateDir: string,
  cached: CachedAttachment,
  { links, executables, runner }: Findings & { readonly runner: Runner },
  runtime: Runtime,
): boolean {
  const { result = {}, source = '', ...id } = cached;
  const { env, owner = '', pluginDirs } = runtime;
  const intent: Intent = {
    ...id,
    ...identifyNetns(cached.netns),
    boot: bootId(env),
    owner,
    source,
    pluginDirs,
    executables,
    cacheDir: cacheDirOf(runtime),
    adopted: true,
    ...defined({ generation: noteOf(cached, runtime) }),
    runner,
  };
  // The cache has only the last plugin's result, which is what every plugin gets on CHECK and DEL.
  const outcomes = Array.from({ length: links }, (_, index): Line => {
    const place = { event: 'link', verb: 'ADD', index } as const;
    return index === 0 ? { ...place, result } : { ...place, same: true };
  });
  replaceRecord(stateDir, intent, [...outcomes, { event: 'done', op: runner.op }]);
  const after = readAttachment(cacheDirOf(runtime), cached);
  if (after && renderAttachment(after) === renderAttachment(cached)) return true;
  dropRecord(stateDir, cached);
  return false;
}
