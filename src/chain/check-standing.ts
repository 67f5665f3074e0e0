// What does CHECK say of every attachment that stands and has a link of one type?
import { toCniError } from '../cni/errors.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { findNetnsIdentity } from '../journal/netns-identity.ts';
import { listRecords } from '../journal/store.ts';
import type { AttachmentId } from './cache-record.ts';
import { findFrozen } from './frozen.ts';
import { findKnown, type Known } from './known.ts';
import { listUses } from './link-types.ts';
import { listAttachments } from './result-cache.ts';
import { checkNetwork } from './run.ts';
import { cacheDirOf, type Runtime } from './runtime.ts';

/** One attachment, and how it is doing. */
export interface Standing extends AttachmentId {
  /** `unknown`: there is no CHECK that could tell. */
  readonly state: 'sound' | 'broken' | 'unknown';
  /** What CHECK said, or why there is none. */
  readonly problem?: string;
}

/**
 * Checks one after the other, with the configuration of its own ADD: of libcni's cache, of the journal, and of further
 * journals. Those whose namespace is gone are left out, and so are those that go meanwhile.
 * @param journals state directories besides the runtime's own
 * @throws CniError 5 when cache or journal cannot be listed
 */
export async function checkStanding(
  type: string,
  journals: readonly string[],
  runtime: Runtime,
): Promise<Standing[]> {
  const standing = new Map<string, Standing>();
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
  readonly within: Runtime;
}

function listStanding(journals: readonly string[], runtime: Runtime): Place[] {
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

async function checkOne(type: string, id: AttachmentId, runtime: Runtime): Promise<Standing | undefined> {
  const { network, containerId, ifname } = id;
  const known = findKnown(id, runtime);
  const list = findFrozen(known, runtime);
  if (!known || !list || !isThere(known)) return undefined;
  if (!listUses(list).some(use => use.type === type)) return undefined;
  const unknown = (problem: string): Standing => ({
    network,
    containerId,
    ifname,
    state: 'unknown',
    problem,
  });
  if (list.disableCheck) return unknown('its list says "disableCheck"');
  if (!atLeast(list.version, SINCE.check)) return unknown(`its list is of version ${list.version}`);
  const { netns, args, capabilityArgs } = known;
  try {
    await checkNetwork(list, { containerId, ifname, netns, args, capabilityArgs }, runtime);
    return { network, containerId, ifname, state: 'sound' };
  } catch (thrown) {
    // A runtime may have taken it down this moment.
    if (!isThere(known) || findKnown(id, runtime) === undefined) return undefined;
    return { network, containerId, ifname, state: 'broken', problem: toCniError(thrown).message };
  }
}

function isThere({ netns }: Known): boolean {
  return netns !== '' && findNetnsIdentity(netns) !== undefined;
}
