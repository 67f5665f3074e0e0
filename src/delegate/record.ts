// How is it recorded which networks a pod has?
//
// Pods have their own journal, and entries of their own in it, in the layout of any attachment, whose configuration is the list of networks,
// each byte for byte as in its ADD, with the status that was published of it. Each network is also in the delegates' own journal.

import { join } from 'node:path';
import * as z from 'zod/mini';
import {
  type Held,
  hold,
  type KnownAttachment,
  listAttachments,
  pastOf,
  readAttachment,
} from '../attachments/store.ts';
import { type Conflist, parseFrozen } from '../chain/config/conflist.ts';
import { type Attachment, type ChainRuntime, holdCall, withRecordedDirs } from '../chain/run/runtime.ts';
import { type CniError, decodingFailure, orTell } from '../cni/errors.ts';
import { defined, describeIssue, type JsonObject, parseJson } from '../cni/json.ts';
import { putFile, removeFile } from '../files/put-file.ts';

const RecordedNetwork = z.object({
  label: z.string(),
  network: z.string(),
  ifname: z.string(),
  source: z.string(),
  args: z.array(z.tuple([z.string(), z.string()])),
  capabilityArgs: z.record(z.string(), z.unknown()),
  /** The device that the pod was given for it. */
  device: z.optional(z.object({ resource: z.string(), id: z.string() })),
  /** The element of the annotation that selected it; absent for any other network. */
  asked: z.optional(z.string()),
  /** What was published of it; absent until then. */
  status: z.optional(z.record(z.string(), z.unknown())),
  /** It is being attached or detached while the pod runs: it may exist, or a part of it. */
  state: z.optional(z.enum(['coming', 'going'])),
});

export type RecordedNetwork = z.output<typeof RecordedNetwork>;

const KIND = 'catena-delegates-1';

const Call = z.object({ env: z.record(z.string(), z.string()), stdin: z.string() });

const Contents = z.object({
  kind: z.literal(KIND),
  /** Directories of the delegates' result cache and journal. */
  cacheDir: z.string(),
  stateDir: z.string(),
  /** In order of ADD. */
  networks: z.array(RecordedNetwork),
  /** Set if the pod's networks follow its annotation: its text when they last did, and how the runner is called again. */
  follow: z.optional(z.object({ annotation: z.string(), call: Call })),
  /**
   * Set for a pod of a virtual machine: interfaces with what belongs to the machine, whether they are quiet until it has moved here, and how
   * the runner is called when it moves.
   */
  machine: z.optional(z.object({ ifnames: z.array(z.string()), moves: z.boolean(), call: Call })),
});

export type PodContents = z.output<typeof Contents>;

/** The identity of a record: the attachment as the runtime names it. */
export type PodKey = Pick<KnownAttachment, 'network' | 'containerId' | 'ifname'>;

/** What a runner did for one interface of one container. */
export interface PodRecord extends PodContents {
  readonly record: KnownAttachment;
}

export function renderPod(contents: Omit<PodContents, 'kind'>): string {
  const { cacheDir, stateDir, networks, follow, machine } = contents;
  return JSON.stringify({ kind: KIND, cacheDir, stateDir, networks, ...defined({ follow, machine }) });
}

/**
 * Reads the networks from a record.
 * @throws CniError 6 when it has none
 */
export function parsePod(record: KnownAttachment): PodRecord {
  const { file, source } = record;
  const value = parseJson(source, problem => unreadable(file, problem));
  const parsed = z.safeParse(Contents, value, { reportInput: true });
  if (parsed.success) return { ...parsed.data, record };
  throw unreadable(file, parsed.error.issues.map(describeIssue).join('; '));
}

/**
 * A network on record, or in the result cache, with the inputs of its ADD.
 * @param netns current path; it may be empty on DEL
 * @throws CniError 6, 7 when its configuration cannot be used
 */
export function recall(
  { containerId }: Pick<PodKey, 'containerId'>,
  {
    source,
    ifname,
    args,
    capabilityArgs,
  }: Pick<KnownAttachment, 'source' | 'ifname' | 'args' | 'capabilityArgs'>,
  netns: string,
): { list: Conflist; attachment: Attachment } {
  return { list: parseFrozen(source), attachment: { containerId, netns, ifname, args, capabilityArgs } };
}

/**
 * Every pod on record, of one network or of all. A damaged record does not hide the others.
 * @throws CniError 5 when a directory cannot be read; a missing one is empty
 */
export function listPods(podsDir: string, network?: string): { pods: PodRecord[]; damaged: CniError[] } {
  const { attachments, damaged } = listAttachments({ journals: [podsDir] }, defined({ network }));
  const broken = [...damaged];
  const tell = (problem: CniError) => broken.push(problem);
  const pods = attachments.flatMap(record => orTell(tell, () => parsePod(record)) ?? []);
  return { pods, damaged: broken };
}

/**
 * Why a record is all that there is of a pod: after a way back to multus, its DEL deletes the networks that it finds in the result cache, and
 * knows no record of ours. Undefined if a network is there, or cannot be read.
 */
export function whyEnded(
  { record, networks, cacheDir, stateDir }: PodRecord,
  env: ChainRuntime['env'],
): string | undefined {
  const past = pastOf(record, env);
  if (!past.stands || past.kind === 'elsewhere' || past.netns() === 'same') return undefined;
  const { containerId } = record;
  try {
    for (const { network, ifname } of networks) {
      const id = { network, containerId, ifname };
      if (readAttachment({ cacheDir, journals: [stateDir] }, id)) return undefined;
    }
  } catch {
    return undefined;
  }
  return `its namespace "${record.netns}" is gone, and another program has deleted its networks`;
}

/** Whether the ADD of a pod has succeeded, and this path leads to its namespace. */
export function isThere(record: KnownAttachment, netns: string): boolean {
  const past = pastOf(record, undefined);
  return past.stands && past.netns(netns) === 'same';
}

/** A runtime for records of pods: their entries are beside their notes. */
export function inPods<R extends ChainRuntime>(
  podsDir: string,
  runtime: R,
): R & Record<'cacheDir' | 'stateDir', string> {
  return { ...runtime, stateDir: podsDir, cacheDir: podsDir };
}

/**
 * Works on a pod while no other process does.
 * @throws CniError 11 when another one has worked on it for too long
 */
export async function withPod<T>(
  { podsDir, runtime }: { readonly podsDir: string; readonly runtime: ChainRuntime },
  key: PodKey,
  purpose: Parameters<typeof holdCall>[1],
  work: (held: Held) => Promise<T>,
): Promise<T> {
  const held = await hold(key, holdCall(inPods(podsDir, runtime), purpose));
  try {
    return await work(held);
  } finally {
    held.release();
  }
}

/** The runtime of the pod's ADD, as far as still usable: today's plugin directories come before the recorded ones. */
export function runtimeOf<R extends ChainRuntime>(
  { runtime }: { readonly runtime: R },
  { cacheDir, stateDir, record }: PodRecord,
): R & Pick<PodContents, 'cacheDir' | 'stateDir'> {
  return { ...withRecordedDirs(runtime, record), cacheDir, stateDir };
}

function unreadable(file: string, problem: string): CniError {
  return decodingFailure(`Cannot read networks in record "${file}": ${problem}`);
}

// After a way back to multus, its DEL reads which networks a pod has in a file beside the result cache, named after the container. Without that file it asks the
// API, which may not know the pod any longer, and then leaves the networks as they are.

const WHAT = "multus's note of a pod";

/** A file of multus: its directory, and the container. */
interface MultusFile {
  readonly cacheDir: string;
  readonly containerId: string;
}

/** Writes it, before any of the networks exists. @throws CniError 5 */
export function writeMultusNote(place: MultusFile, networks: readonly RecordedNetwork[]): void {
  putFile(fileOf(place), JSON.stringify(networks.map(toDelegate)), { what: WHAT });
}

/** Removes it once no network is left, whichever of the two wrote it. @throws CniError 5 */
export function removeMultusNote(place: MultusFile): void {
  removeFile(fileOf(place), WHAT);
}

function fileOf({ cacheDir, containerId }: MultusFile): string {
  return join(cacheDir, containerId);
}

/** `DelegateNetConf` of multus: of `Conf` and `ConfList` it reads whether there are plugins, and calls them with `Bytes`. */
function toDelegate({ label, ifname, source, device }: RecordedNetwork): JsonObject {
  const conf = JSON.parse(source) as JsonObject;
  return {
    ...(Array.isArray(conf.plugins) ? { Conf: {}, ConfList: conf } : { Conf: conf, ConfList: {} }),
    Name: label,
    ifnameRequest: ifname,
    ...(device && { deviceID: device.id, resourceName: device.resource }),
    Bytes: Buffer.from(source).toString('base64'),
  };
}
