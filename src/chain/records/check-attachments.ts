// What does CHECK report for every existing attachment, or for those with a plugin of one type?

import type { AttachmentId } from '../../cni/attachment.ts';
import { defined } from '../../cni/defined.ts';
import { toCniError } from '../../cni/errors.ts';
import { atLeast, SINCE } from '../../cni/version.ts';
import { findNetnsIdentity } from '../../journal/netns-identity.ts';
import { listUses } from '../config/plugin-uses.ts';
import { checkNetwork } from '../run/run.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import type { SegmentRunner } from '../run/segment.ts';
import { findConfigOfAdd } from './config-of-add.ts';
import { listKnown } from './known-attachments.ts';
import { findRemembered, type RememberedAdd } from './remembered-add.ts';

/** The condition of one attachment. */
export interface AttachmentCheck extends AttachmentId {
  /** `unknown`: no CHECK could be run. */
  readonly state: 'sound' | 'broken' | 'unknown';
  /** What CHECK reported, or why it could not be run. */
  readonly problem?: string;
  /** Its list has no CHECK, so nothing but another list would change that it is unknown. */
  readonly unchecked?: true;
}

/** What a caller with many attachments may want. */
export interface CheckOptions {
  /** Whose turn it is, of the attachments of all networks; one after the other if undefined. */
  readonly turns?: Turns;
  /** Makes a runner for each that has its turn: one runner serves one chain at a time. */
  readonly openSegments?: () => SegmentRunner;
}

/** Lets work begin when its turn comes. */
export interface Turns {
  /** @returns what the work returns; undefined if its turn does not come. @param group the network */
  admit<T>(group: string, work: () => Promise<T>): Promise<T | undefined>;
}

/**
 * Checks attachments, each with the configuration of its own ADD: of libcni's cache, of the journal, and of further journals.
 * Skips attachments whose namespace is gone, and those deleted during the check. Once the runtime's signal is aborted, the
 * remaining ones are `unknown`.
 * @param type of a plugin that the attachments have; undefined for all of them
 * @param journals state directories in addition to the runtime's own
 * @throws CniError 5 when cache or journal cannot be listed
 */
export async function checkAttachments(
  type: string | undefined,
  journals: readonly string[],
  runtime: ChainRuntime,
  { turns = oneByOne(), openSegments }: CheckOptions = {},
): Promise<AttachmentCheck[]> {
  const places = new Map(
    listStanding(journals, runtime).map(place => {
      const { id, within } = place;
      return [[within.stateDir, id.network, id.containerId, id.ifname].join('\n'), place];
    }),
  );
  const idle: SegmentRunner[] = [];
  const work = async ({ id, within }: Place): Promise<AttachmentCheck | undefined> => {
    const segments = idle.pop() ?? openSegments?.();
    const one = await checkOne(type, id, { ...within, ...defined({ segments }) });
    if (segments) idle.push(segments);
    return one;
  };
  const checks = await Promise.all(
    [...places.values()].map(place => turns.admit(place.id.network, () => work(place))),
  );
  return checks.filter(one => one !== undefined);
}

function oneByOne(): Turns {
  let last: Promise<unknown> = Promise.resolve();
  return {
    admit: (_, work) => {
      const own = last.then(work);
      last = own.catch(() => {});
      return own;
    },
  };
}

interface Place {
  readonly id: AttachmentId;
  readonly within: ChainRuntime;
}

function listStanding(journals: readonly string[], runtime: ChainRuntime): Place[] {
  const dirs = [...new Set([...(runtime.stateDir === undefined ? [] : [runtime.stateDir]), ...journals])];
  const cacheDir = cacheDirOf(runtime);
  const { attachments } = listKnown({ cacheDir, journals: dirs });
  return attachments.flatMap(({ known, record, stateDir, cached }): Place[] => {
    if (record?.phase === 'attached')
      return [{ id: record, within: { ...runtime, stateDir, cacheDir: record.cacheDir } }];
    return cached && (record?.cacheDir ?? cacheDir) === cacheDir ? [{ id: known, within: runtime }] : [];
  });
}

async function checkOne(
  type: string | undefined,
  id: AttachmentId,
  runtime: ChainRuntime,
): Promise<AttachmentCheck | undefined> {
  const { network, containerId, ifname } = id;
  const unknown = (problem: string): AttachmentCheck => ({
    network,
    containerId,
    ifname,
    state: 'unknown',
    problem,
  });
  const known = findRemembered(id, runtime);
  if (!known) return undefined;
  if (type === undefined && known.netns === '') return unknown('its cached result names no namespace');
  if (!isThere(known)) return undefined;
  const list = findConfigOfAdd(known, runtime);
  if (!list) return type === undefined ? unknown('the configuration of its ADD cannot be used') : undefined;
  if (type !== undefined && !listUses(list).some(use => use.type === type)) return undefined;
  if (runtime.signal?.aborted) return unknown(UNREACHED);
  if (list.disableCheck) return { ...unknown('its list sets "disableCheck"'), unchecked: true };
  if (!atLeast(list.version, SINCE.check))
    return { ...unknown(`its list has version ${list.version}, which has no CHECK`), unchecked: true };
  const { netns, args, capabilityArgs } = known;
  try {
    await checkNetwork(list, { containerId, ifname, netns, args, capabilityArgs }, runtime);
    return { network, containerId, ifname, state: 'sound' };
  } catch (thrown) {
    // A runtime may have just deleted it.
    if (!isThere(known) || findRemembered(id, runtime) === undefined) return undefined;
    if (runtime.signal?.aborted) return unknown(UNANSWERED);
    return { network, containerId, ifname, state: 'broken', problem: toCniError(thrown).message };
  }
}

const UNREACHED = 'the time for checks was over before its turn came';
const UNANSWERED = 'its CHECK did not answer in the time for checks';

function isThere({ netns }: RememberedAdd): boolean {
  return netns !== '' && findNetnsIdentity(netns) !== undefined;
}
