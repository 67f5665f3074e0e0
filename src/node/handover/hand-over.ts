// How is one attachment handed over without being deleted or repaired at the same time?

import { resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { forgetGeneration } from '../../attachments/generation.ts';
import { type KnownAttachment, listAttachments, pastOf, tryHold } from '../../attachments/store.ts';
import { type Conflist, listUses } from '../../chain/config/conflist.ts';
import { isOwnPlugin } from '../../chain/config/find-plugin.ts';
import { JUST_DELETED, noteOf, undoIfDeleted } from '../../chain/records/foreign.ts';
import { findCached, findConfigOfAdd } from '../../chain/records/known-add.ts';
import { callPlugins } from '../../chain/run/call-plugins.ts';
import type { Attachment, ChainRuntime, Runtime } from '../../chain/run/runtime.ts';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { type AttachmentId, toId } from '../../cni/attachment.ts';
import { cacheDirOf, runDir } from '../../cni/directories.ts';
import { HANDOVER_VARIABLE, type HandoverMode } from '../../cni/env.ts';
import { toCniError } from '../../cni/errors.ts';
import { parseHandoverReply } from '../../cni/invocation.ts';
import { defined, type JsonObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';

/** An attachment as its ADD left it. */
export interface HandedAttachment extends KnownAttachment {
  /** Its configuration; undefined if the recorded one cannot be used. */
  readonly list: Conflist | undefined;
  /** Names of all executables that its plugins call. */
  readonly types: readonly string[];
  /** Its namespace is gone, and its devices with it: DEL only has leases and rules to remove. */
  readonly isGone: boolean;
}

/**
 * The attachments in libcni's cache and in the journal, whichever runtime made them. It includes the delegate runner's own
 * attachments, but not those of its delegates, which only the runner can delete.
 * @param network every network by default
 * @throws CniError 5 if cache or journal cannot be listed
 */
export function listAttached(network: string | undefined, runtime: Runtime): HandedAttachment[] {
  const journals = runtime.stateDir === undefined ? [] : [runtime.stateDir];
  const { attachments } = listAttachments({ cacheDir: cacheDirOf(runtime), journals }, defined({ network }));
  return attachments.flatMap(known => {
    // What is to be undone is on record, and what another runtime has made under the same name is not.
    const { onWarning: _, ...quiet } = { ...runtime, cacheDir: known.cacheDir };
    const one = pastOf(known, runtime.env).stands ? known : findCached(known, quiet);
    if (one === undefined) return [];
    const list = findConfigOfAdd(one, runtime);
    const types = list ? [...new Set(listUses(list).map(({ type }) => type))] : [];
    return { ...one, list, types, isGone: pastOf(one, runtime.env).netns() !== 'same' };
  });
}

/** Whether the executables in a directory may have made it; true if the directories were not recorded. */
export function isMadeIn(
  dir: string,
  { stateDir, pluginDirs }: Pick<HandedAttachment, 'stateDir' | 'pluginDirs'>,
): boolean {
  return stateDir === undefined || pluginDirs.some(one => resolve(one) === resolve(dir));
}

/** Runners keep their attachments in records of their own, which no other executable reads. */
const RUNNERS = ['catena', 'multus'];

/**
 * Why other executables cannot delete the attachment at all; undefined if they may be able to.
 * @param executables the other executables, by plugin name
 * @param place name of their location, for the message
 */
export function findMissing(
  { types }: Pick<HandedAttachment, 'types'>,
  executables: ReadonlyMap<string, string>,
  place: string,
): string | undefined {
  const missing = types.filter(type => !executables.has(type));
  const runner = missing.find(type => RUNNERS.includes(type));
  if (runner !== undefined) {
    return `"${runner}" attached its networks and only it can detach them: delete the container first`;
  }
  if (!missing.length) return undefined;
  return `there is no ${missing.map(type => `"${type}"`).join(' and no ')} in ${place} to delete it`;
}

export type Handover = AnswerOf<'HandoverList'>['items'][number];

/**
 * Examines an attachment and, in mode 'do', hands it over. Afterwards its plugins are asked again: if they still have something,
 * the handover is refused.
 */
export async function handOverOne(
  attached: HandedAttachment,
  mode: 'look' | 'do',
  runtime: Runtime,
): Promise<Handover> {
  const { list } = attached;
  const id = toId(attached);
  const refused = (why: string, parts: readonly PluginParts[] = []): Handover => {
    return { ...id, state: 'refused', plugins: parts, why };
  };
  if (list === undefined) return refused('its configuration is not recorded or cannot be used');
  let parts: readonly PluginParts[] = [];
  try {
    parts = await handOver(list, attached, 'look', runtime);
    if (!parts.length) {
      if (mode === 'do') forgetNote(id, runtime);
      return { ...id, state: 'ready', plugins: parts };
    }
    if (mode === 'look') return { ...id, state: 'pending', plugins: parts };
    const note = noteOf(id, runtime);
    // What the runtime that made it keeps of it, if that is another one, whose DEL may run at the same time.
    const isTheirs = !attached.isGone && attached.stateDir === undefined;
    const theirs = isTheirs ? findCached(attached, runtime) : undefined;
    const begun = performance.now();
    const obstacle = await whileHeld(attached, runtime, async () => {
      await handOver(list, attached, 'do', runtime);
    });
    if (obstacle !== undefined) return refused(obstacle, parts);
    if (theirs && (await undoIfDeleted(theirs, note, runtime, begun))) return refused(JUST_DELETED, parts);
    const left = await handOver(list, attached, 'look', runtime);
    if (left.length) return refused('its plugins are unchanged; run the command again', left);
    forgetNote(id, runtime);
    return { ...id, state: 'handed over', plugins: parts };
  } catch (thrown) {
    return refused(toCniError(thrown).message, parts);
  }
}

/** Only our DEL removes the note of the ADD. Without it, GC goes by its list alone. */
function forgetNote(id: AttachmentId, { env }: Runtime): void {
  forgetGeneration(runDir(env), id);
}

/** @returns why the work was not done */
async function whileHeld(
  attached: HandedAttachment,
  { stateDir, env }: Runtime,
  work: () => Promise<void>,
): Promise<string | undefined> {
  const held = tryHold(attached, { stateDir, env, purpose: 'repair' });
  if ('holder' in held) return `process ${held.holder.pid} is working on it; run the command again`;
  try {
    const { record } = held;
    // `catena set` may have changed it since it was listed, and its plugins would hand over ports that it no longer has.
    if (attached.stateDir !== undefined) {
      if (!record || !held.past?.stands) return 'it has just been deleted';
      if (held.past.kind === 'elsewhere') return held.past.why;
      const settings = ({ source, capabilityArgs }: KnownAttachment) => [source, capabilityArgs];
      if (!isDeepStrictEqual(settings(record), settings(attached)))
        return 'it has just been changed; run the command again';
    }
    await work();
    return undefined;
  } finally {
    held.release();
  }
}

/** What one plugin has, or had, that only our executables can delete. */
type PluginParts = AnswerOf<'HandoverList'>['items'][number]['plugins'][number];

/** An attachment with the result of its ADD if the caller has it; else the cached result is used. */
interface Made extends Attachment, AttachmentId {
  readonly result?: JsonObject | undefined;
}

/**
 * Asks each of our plugins, in the order of the conflist, what the reference's DEL would leave behind, or to hand that over.
 * Third-party executables are not called: they delete what they made themselves.
 * @throws CniError of the first plugin that fails; the earlier ones have handed over, and a later call continues
 */
export async function handOver(
  list: Conflist,
  made: Made,
  mode: HandoverMode,
  runtime: ChainRuntime,
): Promise<PluginParts[]> {
  const result = made.result ?? findCached(made, runtime)?.result;
  const prevResult = result && convertResult(result, list.version, 'result of ADD');
  const asking = { ...runtime, env: { ...(runtime.env ?? process.env), [HANDOVER_VARIABLE]: mode } };
  const found: PluginParts[] = [];
  for (const [index, entry] of list.plugins.entries()) {
    // A missing executable cannot be asked; it will be noticed when it has to run DEL.
    if (!isOwnPlugin(entry.type, runtime, runtime.isOwn)) continue;
    const call = { list, verb: 'CHECK', order: [index], attachment: made, prevResult } as const;
    for await (const reply of callPlugins({ ...call, read: parseHandoverReply }, asking)) {
      if ('error' in reply) throw reply.error;
      if (reply.value?.length) found.push({ type: entry.type, index, parts: reply.value });
    }
  }
  return found;
}
