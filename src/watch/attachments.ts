// Which attachments does this host have, whichever runtime made them, which host devices lead to them, and which are networks of a pod?

import { knownLister, type Lister, settledLister } from '../attachments/lister.ts';
import { findHolder, type KnownAttachment, pastOf } from '../attachments/store.ts';
import { findRecord } from '../chain/records/known-add.ts';
import { type ChainRuntime, withRecordedDirs } from '../chain/run/runtime.ts';
import { type AttachmentId, keyOf, toId } from '../cni/attachment.ts';
import { objectIn } from '../cni/invocation.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';
import { type PodRecord, parsePod } from '../delegate/record.ts';

/** An attachment that was made and not deleted, as far as the files say. */
export interface WatchedAttachment extends KnownAttachment {
  readonly key: string;
  /** Names of the devices of its result that are on the host. */
  readonly devices: readonly string[];
  /** The call of the delegate runner that made it, or of which it is one network. */
  readonly pod?: PodCall;
  /** Its networks are all that it consists of, and each is listed as well: its CHECK would only repeat theirs. */
  readonly isCheckedInParts?: true;
}

/** The call of the delegate runner for a pod, which has a record of its own. */
interface PodCall {
  readonly id: AttachmentId;
  /** The journal that has its record. */
  readonly podsDir: string;
  /** The list that names the runner, if the runtime's attachment is listed. */
  readonly source: string | undefined;
}

/** @param journals state directories */
export function attachmentLister(
  journals: readonly string[],
  cacheDir: string,
  isDoubted: (file: object) => boolean,
): Lister<WatchedAttachment> {
  const list = knownLister({ cacheDir, journals }, isDoubted);
  return scope => standingOf(list(scope));
}

/** Attachments that were made and not deleted, each once. Our record of one that another runtime has made again since says nothing. */
export function standingOf(known: readonly KnownAttachment[]): WatchedAttachment[] {
  const standing = known.filter(one => {
    const { stands, kind } = pastOf(one, process.env);
    return stands && kind !== 'elsewhere';
  });
  return [...new Map(standing.map(toWatched).map(one => [one.key, one])).values()];
}

/** What was read of its file. */
export function fileOf(one: WatchedAttachment): object {
  return one.entry ?? one;
}

function toWatched(one: KnownAttachment): WatchedAttachment {
  const made = watched.get(one) ?? { ...one, key: keyOf(one), devices: hostDevicesOf(one.result) };
  watched.set(one, made);
  return made;
}

/** The same is listed again and again. */
const watched = new WeakMap<KnownAttachment, WatchedAttachment>();

/** Names of the interfaces of a result that are in no sandbox. */
function hostDevicesOf(result: JsonObject | undefined): string[] {
  const { interfaces } = result ?? {};
  if (!Array.isArray(interfaces)) return [];
  return interfaces.flatMap(one => {
    if (!isObject(one) || one.sandbox) return [];
    return typeof one.name === 'string' && one.name !== '' ? [one.name] : [];
  });
}

/** Where its records are and its plugins were found. */
export function runtimeFor(one: WatchedAttachment, runtime: ChainRuntime): ChainRuntime {
  const { stateDir } = one;
  return stateDir === undefined ? runtime : { ...withRecordedDirs(runtime, one), stateDir };
}

// A runtime calls the delegate runner as one plugin, and has one attachment. The runner keeps each network as an attachment of its own, and a
// record of the pod that names them. So the same interface is listed twice, and a CHECK of the runtime's attachment is a CHECK of all
// networks, by a process of its own. Networks that are listed are enough then.

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
  const { containerId } = record;
  return {
    id: toId(record),
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
    const pod = { id, podsDir, source: whole?.source };
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
  const record = findRecord(pod.id, { stateDir: pod.podsDir });
  return record !== undefined && (!pastOf(record, undefined).stands || isPodHeld(pod));
}

/** The runner has no other plugins beside it. The lists of attachments are parsed once. */
function hasOnePlugin(one: WatchedAttachment): boolean {
  const file = fileOf(one);
  const count = counted.get(file) ?? countPlugins(one.source);
  counted.set(file, count);
  return count === 1;
}

const counted = new WeakMap<object, number>();

function countPlugins(source: string | undefined): number {
  const list = objectIn(source);
  const plugins = list && memberOf(list, 'plugins');
  if (Array.isArray(plugins)) return plugins.length;
  return list ? 1 : 0;
}
