// Which attachments are networks of a pod that the delegate runner attached?
//
// A runtime calls the runner as one plugin, and has one attachment. The runner keeps each network as an attachment of its own, and a
// record of the pod that names them. So the same interface is listed twice, and a CHECK of the runtime's attachment is a CHECK of all
// networks, by a process of its own. Networks that are listed are enough then.

import { findHolder } from '../attachments/lock.ts';
import {
  type AttachmentRecord,
  type Lister,
  pastOf,
  readRecord,
  settledLister,
} from '../attachments/store.ts';
import { keyOf } from '../cni/attachment.ts';
import { isObject, memberOf, tryParse } from '../cni/json.ts';
import { type PodRecord, parsePod } from '../delegate/record.ts';
import { fileOf, type PodCall, type WatchedAttachment } from './attachments.ts';

/** A pod on record, and the journal and keys of its networks. */
interface ListedPod extends Omit<PodCall, 'source'> {
  readonly stateDir: string;
  readonly networks: readonly string[];
}

/** @param podsDir the runner's journal of pods */
export function podLister(podsDir: string): Lister<ListedPod> {
  return settledLister(podsDir, record => toListed(parsePod(record), podsDir));
}

/** A pod whose record was read. */
export function toListed({ record, stateDir, networks }: PodRecord, podsDir: string): ListedPod {
  const { network, containerId, ifname } = record;
  return {
    id: { network, containerId, ifname },
    podsDir,
    stateDir,
    networks: networks.map(one => keyOf({ network: one.network, containerId, ifname: one.ifname })),
  };
}

/** The same attachments, each with the pod that it belongs to. */
export function withPods(
  attachments: readonly WatchedAttachment[],
  pods: readonly ListedPod[],
): Map<string, WatchedAttachment> {
  const found = new Map(attachments.map(one => [one.key, one]));
  for (const { id, podsDir, stateDir, networks } of pods) {
    const whole = found.get(keyOf(id));
    const pod = { id, podsDir, source: whole?.known.source };
    const parts = networks.flatMap(key => found.get(key) ?? []);
    const own = parts.filter(part => part.stateDir === stateDir);
    for (const one of own) found.set(one.key, { ...one, pod });
    // A network may have the name of the runner's list, which hides the runtime's attachment.
    if (whole === undefined || networks.includes(whole.key)) continue;
    const isInParts = own.length === networks.length && own.length > 0 && hasOnePlugin(whole);
    found.set(whole.key, { ...whole, pod, ...(isInParts ? { isCheckedInParts: true } : {}) });
  }
  return found;
}

/** Whether a process attaches, changes or detaches the pod. */
export function isPodHeld(pod: PodCall): boolean {
  return findHolder({ stateDir: pod.podsDir }, pod.id) !== undefined;
}

/** The same, or one has not finished that. */
export function isPodUnsettled(pod: PodCall): boolean {
  const record = findRecord(pod);
  return record !== undefined && (!pastOf(record, undefined).stands || isPodHeld(pod));
}

/** Undefined also for a damaged record. */
function findRecord({ id, podsDir }: PodCall): AttachmentRecord | undefined {
  try {
    return readRecord(podsDir, id);
  } catch {
    return undefined;
  }
}

/** The runner has no other plugins beside it. The lists of attachments are parsed once. */
function hasOnePlugin(one: WatchedAttachment): boolean {
  const file = fileOf(one);
  const count = counted.get(file) ?? countPlugins(one.known.source);
  counted.set(file, count);
  return count === 1;
}

const counted = new WeakMap<object, number>();

function countPlugins(source: string | undefined): number {
  const list = source === undefined ? undefined : tryParse(source);
  const plugins = isObject(list) ? memberOf(list, 'plugins') : undefined;
  if (Array.isArray(plugins)) return plugins.length;
  return isObject(list) ? 1 : 0;
}
