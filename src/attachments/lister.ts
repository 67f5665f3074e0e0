// How does the daemon's watch list attachments again and again, without reading again what has not changed?

import { basename, join } from 'node:path';
import { FileCache } from '../files/file-cache.ts';
import { namesIn, readIfThere } from '../files/read-file.ts';
import { type Entry, parseEntry } from './entries.ts';
import {
  cacheDirsOf,
  joinKnown,
  type KnownAttachment,
  noteIn,
  notesDir,
  ofEntry,
  type Places,
} from './notes.ts';

/**
 * Lists what is in the files each time it is called: `all` by a look at each file, `new` by a look at directories that have changed and at
 * what was not settled. Files that have not changed since are not read again.
 */
export type Lister<T> = (scope?: 'all' | 'new') => T[];

/**
 * Lists attachments of all networks again and again, whichever runtime made them, as listAttachments() does.
 * @param isDoubted whether what was read of an entry may not hold any longer
 */
export function knownLister(
  places: Required<Places>,
  isDoubted: (entry: object) => boolean,
): Lister<KnownAttachment> {
  const { cacheDir, journals } = places;
  const noted = journals.map(stateDir => ({
    root: notesDir(stateDir),
    files: new FileCache(
      file => noteIn(stateDir, file),
      () => false,
    ),
  }));
  const cached = new Map<string, FileCache<Entry>>();
  const entriesIn = (dir: string, scope: 'all' | 'new' | undefined): Entry[] => {
    const files = cached.get(dir) ?? new FileCache(entryAt, entry => !isDoubted(entry));
    cached.set(dir, files);
    return files.list([join(dir, 'results')], scope);
  };
  return scope => {
    const notes = noted.flatMap(({ root, files }) => {
      const dirs = namesIn(root).map(name => join(root, name));
      return files.list(dirs, scope);
    });
    const dirs = new Set([cacheDir, ...journals.flatMap(cacheDirsOf)]);
    const entries = new Map([...dirs].map(dir => [dir, entriesIn(dir, scope)]));
    return joinKnown(places, entries, notes);
  };
}

/**
 * Lists what the settled attachments of a journal say that has its entries beside its notes.
 * @param read called once for each entry
 */
export function settledLister<T extends object>(
  stateDir: string,
  read: (one: KnownAttachment) => T,
): Lister<T> {
  const at = (path: string): T | undefined => {
    const entry = entryAt(path);
    const one = entry && ofEntry(entry, stateDir, [stateDir]);
    return one?.stateDir === undefined ? undefined : read(one);
  };
  // An entry is replaced when what it says changes.
  const files = new FileCache(at, (_, hasChanged) => !hasChanged);
  return scope => files.list([join(stateDir, 'results')], scope);
}

/** Undefined for a temporary file. */
function entryAt(path: string): Entry | undefined {
  if (basename(path).startsWith('.')) return undefined;
  const text = readIfThere(path, 'cached result');
  return text === undefined ? undefined : parseEntry(text, path, undefined);
}
