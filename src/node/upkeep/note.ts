// Which attachments does a plugin want to be called for again, and when?
//
// A plugin whose work is never done, such as keeping a lease, leaves a note. The daemon calls the plugin again when the note is
// due, in one of its workers; until then nothing waits in a namespace. The note carries the plugin's own state, too, so one file
// is all there is, and it works the same whether a daemon was there when it was written or not.

import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import * as z from 'zod/mini';
import { findGeneration } from '../../attachments/generation.ts';
import { type AttachmentId, directoryOf, fileNameOf } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { defined, tryParse } from '../../cni/json.ts';
import { FileCache } from '../../files/file-cache.ts';
import { bootId } from '../../files/process-stat.ts';
import { putFile, removeFile, unfinishedName } from '../../files/put-file.ts';
import { namesIfThere, readIfThere, UNREADABLE } from '../../files/read-file.ts';
import { holdFlock } from '../../sys/flock.ts';
import { findNetnsCookie } from '../../sys/netns-identity.ts';

/** Seconds since the boot, including time asleep (CLOCK_BOOTTIME). Setting the time of day does not change it. */
export function bootClock(): number {
  return Number.parseFloat(readFileSync('/proc/uptime', 'latin1'));
}

const Note = z.object({
  network: z.string(),
  containerId: z.string(),
  ifname: z.string(),
  /** Tells several notes of one plugin about one attachment apart, each with a time of its own. */
  part: z.optional(z.string()),
  /** Never used again: tells this note from a later one of the same attachment. */
  id: z.string(),
  /** The boot whose clock `dueAt` is of. No namespace outlives it. */
  boot: z.string(),
  /** Whether it is about something that outlives a boot: then it is due at once after the next one. */
  outlivesBoot: z.optional(z.boolean()),
  /** Seconds since the boot; absent if there is nothing more to do. */
  dueAt: z.optional(z.number()),
  /** Seconds since the boot from which on a call does not wait for those of its network that hang: it is a short one then. */
  urgentAt: z.optional(z.number()),
  /** The generation of the attachment (attachments/generation.ts), if it was noted. */
  generation: z.optional(z.string()),
  /** The cookie of its namespace (sys/netns-identity.ts), if the kernel has cookies. */
  netnsCookie: z.optional(z.string()),
  /** How the plugin is called again. */
  call: z.object({ env: z.record(z.string(), z.string()), stdin: z.string() }),
  /** The plugin's own. */
  state: z.unknown(),
});

/** What a plugin noted about an attachment. */
export type UpkeepNote = z.output<typeof Note>;

/** What a note is about: an attachment, or a part of what the plugin keeps for it. */
export type UpkeepOwner = AttachmentId & Partial<Pick<UpkeepNote, 'part'>>;

/** The directory of all notes; the daemon that acts on them locks the file `lock` in it. */
function upkeepDir(stateDir: string): string {
  return join(stateDir, 'upkeep');
}

/** The lock of a plugin's notes about a network, for reading one and writing it. */
export function upkeepLockOf(stateDir: string, plugin: string, network: string): string {
  return join(upkeepDir(stateDir), plugin, `.${directoryOf(network)}.lock`);
}

/**
 * The note about an attachment or a part; undefined if there is none, or it cannot be read as one.
 * @throws CniError 5 when it cannot be looked at, as for want of descriptors: what it keeps would be taken for nothing
 */
export function findUpkeep(stateDir: string, plugin: string, owner: UpkeepOwner): UpkeepNote | undefined {
  return readNote(fileOf(stateDir, plugin, owner));
}

/**
 * Writes the note about an attachment, replacing an earlier one.
 * @throws CniError 5; then nothing is left behind
 */
export function putUpkeep(stateDir: string, plugin: string, note: UpkeepNote): void {
  // Not among the notes: what a crash left there would be taken for one.
  const unfinished = join(upkeepDir(stateDir), plugin, unfinishedName());
  putFile(fileOf(stateDir, plugin, note), JSON.stringify(note), { what: 'note', unfinished });
}

/** Removes the note about an attachment. A missing one is ignored. @throws CniError 5 */
export function removeUpkeep(stateDir: string, plugin: string, owner: UpkeepOwner): void {
  removeFile(fileOf(stateDir, plugin, owner), 'note');
}

/** A plugin's notes about a network. @throws as {@link findUpkeep} */
export function listUpkeep(stateDir: string, plugin: string, network: string): UpkeepNote[] {
  const dir = join(upkeepDir(stateDir), plugin, directoryOf(network));
  return namesIfThere(dir, 'notes', UNREADABLE).flatMap(name => readNote(join(dir, name)) ?? []);
}

interface PluginNote {
  readonly plugin: string;
  readonly note: UpkeepNote;
}

/**
 * Lists the notes of all plugins each time it is called. A file that has not changed since is not read again.
 * @returns a function that throws CniError 5 when a directory cannot be listed for want of descriptors or memory
 */
export function upkeepLister(stateDir: string): () => PluginNote[] {
  const dir = upkeepDir(stateDir);
  const cache = new FileCache<PluginNote>(path => {
    const note = parseNote(readFileSync(path, 'utf8'));
    return note && { plugin: basename(dirname(dirname(path))), note };
  });
  const below = (parent: string) => namesIfThere(parent, 'notes', UNREADABLE).map(name => join(parent, name));
  return () => cache.list(below(dir).flatMap(below));
}

/** No interface has a colon in its name. */
function fileOf(stateDir: string, plugin: string, owner: UpkeepOwner): string {
  const name = owner.part === undefined ? fileNameOf(owner) : `${fileNameOf(owner)}:${owner.part}`;
  return join(upkeepDir(stateDir), plugin, directoryOf(owner.network), name);
}

function readNote(path: string): UpkeepNote | undefined {
  return parseNote(readIfThere(path, 'note', UNREADABLE) ?? '');
}

function parseNote(text: string): UpkeepNote | undefined {
  const { success, data } = Note.safeParse(tryParse(text));
  return success ? data : undefined;
}

/** What tells an attachment, and its namespace, from a later one of the same name and path. */
type UpkeepIdentity = Pick<UpkeepNote, 'boot' | 'generation' | 'netnsCookie'>;

/** The identity of an attachment now. @param netns path of its namespace */
export function identityOf(
  environment: Readonly<Record<string, string | undefined>>,
  owner: AttachmentId,
  netns: string,
): UpkeepIdentity {
  const generation = findGeneration(runDir(environment), owner)?.token || undefined;
  const netnsCookie = findNetnsCookie(netns) || undefined;
  return { boot: bootId(environment), ...defined({ generation, netnsCookie }) };
}

/** Whether a note is about the attachment that has this identity. A generation may be unknown: the run directory can be lost. */
export function isStillSame(note: UpkeepIdentity, now: UpkeepIdentity): boolean {
  const isUnknown = note.generation === undefined || now.generation === undefined;
  const isSameGeneration = isUnknown || note.generation === now.generation;
  return note.boot === now.boot && isSameGeneration && note.netnsCookie === now.netnsCookie;
}

/**
 * Makes this process the one that acts on the notes.
 * @returns a function that gives that up; undefined if another process does
 */
export function becomeKeeper(stateDir: string): (() => void) | undefined {
  return holdFlock(join(upkeepDir(stateDir), 'lock'), { mode: 0o600, directoryMode: 0o700 });
}

/** Whether a process acts on the notes now. */
export function isKept(stateDir: string): boolean {
  const kept = attempt(() => {
    const release = becomeKeeper(stateDir);
    release?.();
    return release === undefined;
  });
  return kept ?? false;
}
