// Which attachments exist, and what was the result of their ADD, by libcni's files?
import {
  closeSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  unlinkSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type AttachmentId, digestOf, sameAttachment } from '../cni/attachment.ts';
import { cniCacheDir } from '../cni/directories.ts';
import { CniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { fileFailure } from '../files/failure.ts';
import {
  putFile,
  removeFile,
  sweepGivenUp,
  sweepUnfinished,
  unfinishedName,
  writeNewFile,
} from '../files/put-file.ts';
import { readIfThere, tryRead } from '../files/read-file.ts';
import { type CachedAttachment, parseRecord, renderAttachment } from './entry.ts';
import { cacheFileOf } from './place.ts';

/** Where the reference keeps its files; shared with every runtime built on it. */
export const DEFAULT_CACHE_DIR = cniCacheDir({});

/**
 * The attachment on record, or undefined if there is none.
 * @throws CniError 6 when its file is damaged or of another kind, 5 when it cannot be read, 7 for an impossible id
 */
export function readAttachment(dir: string, id: AttachmentId): CachedAttachment | undefined {
  return readEntry(cacheFileOf(dir, id), id);
}

function readEntry(file: string, id: AttachmentId): CachedAttachment | undefined {
  const text = readIfThere(file, 'cached result');
  if (text === undefined) return undefined;
  const attachment = parseRecord(text, file, id);
  return sameAttachment(attachment, id) ? attachment : undefined;
}

/**
 * Writes a cached result: a temporary file, then renamed, so a reader never finds half of it.
 * @throws CniError 5
 */
export function writeAttachment(dir: string, attachment: CachedAttachment): void {
  // Not synced: a power failure that tears the file also ends the namespaces it is about.
  putFile(cacheFileOf(dir, attachment), renderAttachment(attachment), { what: 'cached result' });
}

/** Gives the entry of an attachment, if there is one, another result. @throws CniError 5 and 6 */
export function editEntry(dir: string, id: AttachmentId, result: JsonObject): void {
  const cached = readAttachment(dir, id);
  if (cached) writeAttachment(dir, { ...cached, result });
}

/**
 * Replaces a cached result, but never one that another runtime has written since: the file is taken aside and looked at, and the
 * new one is linked to its name, which fails if there is one again. If the process dies, the next call puts back what was taken.
 * @param isStill whether what was found, or nothing, is what the caller has seen; a file that cannot be used is nothing
 * @throws CniError 5
 */
export function replaceAttachment(
  dir: string,
  attachment: CachedAttachment,
  isStill: (cached: CachedAttachment | undefined) => boolean,
): void {
  const file = cacheFileOf(dir, attachment);
  const results = dirname(file);
  const aside = asideOf(file);
  const fresh = join(results, unfinishedName());
  try {
    mkdirSync(results, { recursive: true, mode: 0o700 });
    closeSync(writeNewFile(fresh, renderAttachment(attachment)));
    putBack(aside, file);
    if (lstatSync(file, { throwIfNoEntry: false })) renameSync(file, aside);
    const text = tryRead(aside);
    const found = text === undefined ? undefined : tryParse(() => parseRecord(text, file, attachment));
    if (isStill(found)) linkUnlessThere(fresh, file);
    putBack(aside, file);
  } catch (cause) {
    throw fileFailure('replace cached result', file, cause);
  } finally {
    rmSync(fresh, { force: true });
  }
}

/**
 * Like {@link readAttachment}, but also what {@link replaceAttachment} has taken aside: its process has died, or is about to put
 * it back.
 * @throws CniError 5 and 6 as {@link readAttachment}
 */
export function readEvenAside(dir: string, id: AttachmentId): CachedAttachment | undefined {
  return inPlaceOrAside(cacheFileOf(dir, id), file => readEntry(file, id));
}

/** A file that is neither in its place nor aside is looked for once more: a change may have put it back in between. */
function inPlaceOrAside<T>(file: string, read: (path: string) => T | undefined): T | undefined {
  const aside = asideOf(file);
  return read(file) ?? read(aside) ?? read(file) ?? read(aside);
}

/** Removes what {@link replaceAttachment} has taken aside and its process, which died, has not put back. @throws CniError 5 */
export function removeAside(dir: string, id: AttachmentId): void {
  removeFile(asideOf(cacheFileOf(dir, id)), 'cached result');
}

function asideOf(file: string): string {
  return join(dirname(file), `${ASIDE}${digestOf(basename(file))}`);
}

const ASIDE = '.catena-aside-';

/** Puts a file that was taken aside back, unless there is one again. */
function putBack(aside: string, file: string): void {
  if (lstatSync(aside, { throwIfNoEntry: false }) === undefined) return;
  linkUnlessThere(aside, file);
  unlinkSync(aside);
}

function linkUnlessThere(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function tryParse<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch {
    return undefined;
  }
}

/** Removes temporary files of processes that were killed while they wrote a cached result. */
export function sweepCache(dir: string): void {
  const results = join(dir, 'results');
  sweepUnfinished(results);
  sweepGivenUp(results, name => name.startsWith(ASIDE));
}

/**
 * Removes a cached result. A missing one is ignored.
 * @throws CniError 5
 */
export function removeAttachment(dir: string, id: AttachmentId): void {
  const file = cacheFileOf(dir, id);
  if (isOfAnother(file, id)) return;
  removeAside(dir, id);
  removeFile(file, 'cached result');
}

/** Selects attachments; a field that is left out matches every one. */
export interface AttachmentFilter {
  readonly network?: string;
  readonly containerId?: string;
}

/** What a cache holds. */
export interface AttachmentList {
  /** Sorted by file. */
  readonly attachments: readonly CachedAttachment[];
  /** Files that are damaged or not cached results. At most their names tell which attachment they belong to. */
  readonly damaged: readonly CniError[];
}

/**
 * The attachments in the cache. Files of libcni 0.7 name their attachment only in the file name, and are listed if that
 * is unambiguous. An unusable file does not hide the others.
 * @throws CniError 5 when the directory cannot be read; a missing one is empty
 */
export function listAttachments(dir: string, filter: AttachmentFilter = {}): AttachmentList {
  const results = join(dir, 'results');
  const listed = namesOf(results);
  const asides = listed.filter(name => name.startsWith(ASIDE));
  const aside = asides.flatMap(name => tryParse(() => readRecord(join(results, name), name)) ?? []);
  // What was aside may be back under its name.
  const names = asides.length ? new Set([...listed, ...namesOf(results)]) : listed;
  const attachments: CachedAttachment[] = [];
  const damaged: CniError[] = [];
  for (const name of [...names].filter(one => mayHold(one, filter)).sort()) {
    try {
      const attachment = inPlaceOrAside(join(results, name), file => readRecord(file, name));
      if (attachment !== undefined && isMeant(attachment, filter)) attachments.push(attachment);
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
      damaged.push(error);
    }
  }
  const missing = aside.filter(
    one => isMeant(one, filter) && !attachments.some(other => sameAttachment(one, other)),
  );
  return { attachments: [...attachments, ...missing], damaged };
}

function namesOf(results: string): string[] {
  try {
    return readdirSync(results);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw fileFailure('list cached results in', results, cause);
  }
}

/** Names that begin with a dot are temporary files. */
function mayHold(name: string, { network, containerId }: AttachmentFilter): boolean {
  if (name.startsWith('.')) return false;
  return (
    (network === undefined || name.startsWith(`${network}-`)) &&
    (containerId === undefined || name.includes(`-${containerId}-`))
  );
}

function isMeant(attachment: CachedAttachment, { network, containerId }: AttachmentFilter): boolean {
  return (
    (network === undefined || attachment.network === network) &&
    (containerId === undefined || attachment.containerId === containerId)
  );
}

/** Undefined for a directory, and for a file deleted since it was listed. */
function readRecord(file: string, name: string): CachedAttachment | undefined {
  const text = readIfThere(file, 'cached result', ['ENOENT', 'EISDIR']);
  if (text === undefined) return undefined;
  const [network = '', containerId = '', ifname = '', ...more] = name.split('-');
  const isTold = more.length === 0 && !name.startsWith('.');
  return parseRecord(text, file, isTold ? { network, containerId, ifname } : undefined);
}

/** Whether a file is of another attachment: all three names may contain "-", so its fields decide. */
export function isOfAnother(file: string, id: AttachmentId): boolean {
  try {
    const text = readIfThere(file, 'cached result');
    return text !== undefined && !sameAttachment(parseRecord(text, file, id), id);
  } catch {
    return false;
  }
}
