// Which attachments does this host have, whichever runtime made them, and which host devices lead to them?
import { join } from 'node:path';
import { withRecordedDirs } from '../chain/records/delete-attachment.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { type AttachmentId, keyOf } from '../cni/attachment.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { namesIn, readIfThere } from '../files/read-file.ts';
import { isElsewhere } from '../journal/elsewhere.ts';
import { type CachedAttachment, parseRecord } from '../journal/entry.ts';
import { notesDir } from '../journal/place.ts';
import type { AttachmentRecord, KnownAttachment } from '../journal/record.ts';
import { cacheDirsOf, joinKnown, readNote, recordOf } from '../journal/store.ts';
import { FileCache } from './file-cache.ts';

/** An attachment that was made and not deleted, as far as the files say. */
export interface WatchedAttachment {
  readonly id: AttachmentId;
  readonly key: string;
  /** What its ADD was called with, and its result. */
  readonly known: CachedAttachment;
  /** The journal and its record; undefined if another runtime made it, and only libcni's cache has it. */
  readonly recorded: { readonly stateDir: string; readonly record: AttachmentRecord } | undefined;
  /** Names of the devices of its result that are on the host. */
  readonly devices: readonly string[];
  /** The call of the delegate runner that made it, or of which it is one network. */
  readonly pod?: PodCall;
  /** Its networks are all that it consists of, and each is listed as well: its CHECK would only repeat theirs. */
  readonly isCheckedInParts?: true;
}

/** The call of the delegate runner for a pod, which has a record of its own. */
export interface PodCall {
  readonly id: AttachmentId;
  /** The journal that has its record. */
  readonly podsDir: string;
  /** The list that names the runner, if the runtime's attachment is listed. */
  readonly source: string | undefined;
}

/**
 * Lists attachments each time it is called: `all` by a look at each file, `new` by a look at directories that have changed and at what
 * was not settled. Files that have not changed since are not read again.
 */
export type Lister<T> = (scope?: 'all' | 'new') => T[];

/**
 * @param journals state directories
 * @param cacheDir of libcni's cache. An attachment that has a record, too, is listed once
 * @param isDoubted whether what was read of an attachment's file may not hold any longer
 */
export function attachmentLister(
  journals: readonly string[],
  cacheDir: string,
  isDoubted: (file: object) => boolean,
): Lister<WatchedAttachment> {
  const noted = journals.map(stateDir => ({ stateDir, files: new FileCache(readNote, () => false) }));
  const isLasting = (dir: string) => (entry: CachedAttachment) =>
    ![entry, ...journals.map(stateDir => recordOf(stateDir, entry, dir))].some(one => one && isDoubted(one));
  const cached = new Map<string, FileCache<CachedAttachment>>();
  const entriesIn = (dir: string, scope: 'all' | 'new' | undefined): CachedAttachment[] => {
    const files = cached.get(dir) ?? new FileCache(readEntry, isLasting(dir));
    cached.set(dir, files);
    return files.list([join(dir, 'results')], scope);
  };
  return scope => {
    const dirs = new Set([cacheDir, ...journals.flatMap(cacheDirsOf)]);
    const entries = new Map([...dirs].map(dir => [dir, entriesIn(dir, scope)]));
    const notes = noted.map(({ stateDir, files }) => {
      return { stateDir, notes: files.list(noteDirsIn(stateDir), scope) };
    });
    return standingOf(joinKnown(cacheDir, entries, notes));
  };
}

/** Attachments that were made and not deleted, each once. Our record of one that another runtime has made again since says nothing. */
export function standingOf(known: readonly KnownAttachment[]): WatchedAttachment[] {
  const standing = known.flatMap(({ known, record, stateDir }) => {
    const recorded =
      record && stateDir !== undefined && known.file !== undefined ? { stateDir, record } : undefined;
    if (record && record.phase !== 'attached') return [];
    return recorded && isElsewhere(recorded.record, process.env) ? [] : toWatched(known, recorded);
  });
  return [...new Map(standing.map(one => [one.key, one])).values()];
}

/** Directories of all notes of a journal. */
function noteDirsIn(stateDir: string): string[] {
  const root = notesDir(stateDir);
  return namesIn(root).map(name => join(root, name));
}

/** What was read of its file. */
export function fileOf({ recorded, known }: WatchedAttachment): object {
  return recorded?.record ?? known;
}

function toWatched(known: CachedAttachment, recorded: WatchedAttachment['recorded']): WatchedAttachment {
  const { network, containerId, ifname } = known;
  const id = { network, containerId, ifname };
  return { id, key: keyOf(id), known, recorded, devices: hostDevicesOf(known.result) };
}

/** Names of the interfaces of a result that are in no sandbox. */
function hostDevicesOf(result: JsonObject | undefined): string[] {
  const { interfaces } = result ?? {};
  if (!Array.isArray(interfaces)) return [];
  return interfaces.flatMap(one => {
    if (!isObject(one) || one.sandbox) return [];
    return typeof one.name === 'string' && one.name !== '' ? [one.name] : [];
  });
}

/** Undefined for a temporary file. */
export function readEntry(path: string): CachedAttachment | undefined {
  if (path.slice(path.lastIndexOf('/') + 1).startsWith('.')) return undefined;
  const text = readIfThere(path, 'cached result');
  return text === undefined ? undefined : parseRecord(text, path, undefined);
}

/** Where its records are and its plugins were found. */
export function runtimeFor({ recorded }: WatchedAttachment, runtime: ChainRuntime): ChainRuntime {
  if (recorded === undefined) return runtime;
  const { stateDir, record } = recorded;
  return { ...withRecordedDirs(runtime, record), stateDir, cacheDir: record.cacheDir };
}
