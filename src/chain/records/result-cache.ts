// Which attachments exist, and what was the result of their ADD, by libcni's files?
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type AttachmentId, sameAttachment } from '../../cni/attachment.ts';
import { cniCacheDir } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { fileFailure } from '../../files/failure.ts';
import { putFile } from '../../files/put-file.ts';
import { readIfThere } from '../../files/read-file.ts';
import { removeFile } from '../../files/remove-file.ts';
import { sweepUnfinished } from '../../files/unfinished.ts';
import { type CachedAttachment, parseRecord, renderAttachment } from './cache-record.ts';

/** Where the reference keeps its files; shared with every runtime built on it. */
export const DEFAULT_CACHE_DIR = cniCacheDir({});

/**
 * The file of an attachment.
 * @throws CniError 7 when a part is empty or would escape the directory
 */
export function cacheFileOf(dir: string, { network, containerId, ifname }: AttachmentId): string {
  if ([network, containerId, ifname].every(part => part !== '' && !/[/\0]/.test(part))) {
    return join(dir, 'results', `${network}-${containerId}-${ifname}`);
  }
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot build the name of the cached result: it needs a network ("${network}"), a container id ("${containerId}") and an interface ("${ifname}"), without "/"`,
  );
}

/**
 * The attachment on record, or undefined if there is none.
 * @throws CniError 6 when its file is damaged or of another kind, 5 when it cannot be read, 7 for an impossible id
 */
export function readAttachment(dir: string, id: AttachmentId): CachedAttachment | undefined {
  const file = cacheFileOf(dir, id);
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

/** Removes temporary files of processes that were killed while they wrote a cached result. */
export function sweepCache(dir: string): void {
  sweepUnfinished(join(dir, 'results'));
}

/**
 * Removes a cached result. A missing one is ignored.
 * @throws CniError 5
 */
export function removeAttachment(dir: string, id: AttachmentId): void {
  const file = cacheFileOf(dir, id);
  if (isOfAnother(file, id)) return;
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
  let names: string[];
  try {
    names = readdirSync(results).sort();
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return { attachments: [], damaged: [] };
    throw fileFailure('list cached results in', results, cause);
  }
  const attachments: CachedAttachment[] = [];
  const damaged: CniError[] = [];
  for (const name of names.filter(one => mayHold(one, filter))) {
    try {
      const attachment = readRecord(join(results, name), name);
      if (attachment !== undefined && isMeant(attachment, filter)) attachments.push(attachment);
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
      damaged.push(error);
    }
  }
  return { attachments, damaged };
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
  return parseRecord(text, file, more.length ? undefined : { network, containerId, ifname });
}

/** All three names may contain "-", so the file may belong to another attachment. Its fields decide. */
function isOfAnother(file: string, id: AttachmentId): boolean {
  try {
    const text = readIfThere(file, 'cached result');
    return text !== undefined && !sameAttachment(parseRecord(text, file, id), id);
  } catch {
    return false;
  }
}
