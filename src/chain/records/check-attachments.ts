// What does CHECK report for every existing attachment, or for those with a plugin of one type?

import type { AttachmentId } from '../../cni/attachment.ts';
import { toCniError } from '../../cni/errors.ts';
import { atLeast, SINCE } from '../../cni/version.ts';
import { findNetnsIdentity } from '../../journal/netns-identity.ts';
import { listRecords } from '../../journal/store.ts';
import { listUses } from '../config/plugin-uses.ts';
import { checkNetwork } from '../run/run.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { findConfigOfAdd } from './config-of-add.ts';
import { findRemembered, type RememberedAdd } from './remembered-add.ts';
import { listAttachments } from './result-cache.ts';

/** The condition of one attachment. */
export interface AttachmentCheck extends AttachmentId {
  /** `unknown`: no CHECK could be run. */
  readonly state: 'sound' | 'broken' | 'unknown';
  /** What CHECK reported, or why it could not be run. */
  readonly problem?: string;
}

/**
 * Checks attachments one at a time, each with the configuration of its own ADD: of libcni's cache, of the journal, and of further
 * journals. Skips attachments whose namespace is gone, and those deleted during the check.
 * @param type of a plugin that the attachments have; undefined for all of them
 * @param journals state directories in addition to the runtime's own
 * @throws CniError 5 when cache or journal cannot be listed
 */
export async function checkAttachments(
  type: string | undefined,
  journals: readonly string[],
  runtime: ChainRuntime,
): Promise<AttachmentCheck[]> {
  const standing = new Map<string, AttachmentCheck>();
  for (const { id, within } of listStanding(journals, runtime)) {
    if (runtime.signal?.aborted) break;
    const key = [within.stateDir, id.network, id.containerId, id.ifname].join('\n');
    if (standing.has(key)) continue;
    const one = await checkOne(type, id, within);
    if (one) standing.set(key, one);
  }
  return [...standing.values()];
}

interface Place {
  readonly id: AttachmentId;
  readonly within: ChainRuntime;
}

function listStanding(journals: readonly string[], runtime: ChainRuntime): Place[] {
  const { attachments } = listAttachments(cacheDirOf(runtime));
  const own = attachments.map(id => ({ id, within: runtime }));
  const dirs = [...new Set([...(runtime.stateDir === undefined ? [] : [runtime.stateDir]), ...journals])];
  const recorded = dirs.flatMap(stateDir => {
    return listRecords(stateDir)
      .records.filter(({ phase }) => phase === 'attached')
      .map(record => ({ id: record, within: { ...runtime, stateDir, cacheDir: record.cacheDir } }));
  });
  return [...own, ...recorded];
}

async function checkOne(
  type: string | undefined,
  id: AttachmentId,
  runtime: ChainRuntime,
): Promise<AttachmentCheck | undefined> {
  const { network, containerId, ifname } = id;
  const known = findRemembered(id, runtime);
  const list = findConfigOfAdd(known, runtime);
  if (!known || !list || !isThere(known)) return undefined;
  if (type !== undefined && !listUses(list).some(use => use.type === type)) return undefined;
  const unknown = (problem: string): AttachmentCheck => ({
    network,
    containerId,
    ifname,
    state: 'unknown',
    problem,
  });
  if (list.disableCheck) return unknown('its list sets "disableCheck"');
  if (!atLeast(list.version, SINCE.check)) return unknown(`its list has version ${list.version}`);
  const { netns, args, capabilityArgs } = known;
  try {
    await checkNetwork(list, { containerId, ifname, netns, args, capabilityArgs }, runtime);
    return { network, containerId, ifname, state: 'sound' };
  } catch (thrown) {
    // A runtime may have just deleted it.
    if (!isThere(known) || findRemembered(id, runtime) === undefined) return undefined;
    return { network, containerId, ifname, state: 'broken', problem: toCniError(thrown).message };
  }
}

function isThere({ netns }: RememberedAdd): boolean {
  return netns !== '' && findNetnsIdentity(netns) !== undefined;
}
