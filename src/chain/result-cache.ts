// Which attachments exist, and what did their ADD say? (libcni's files, in libcni's place)
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { cniCacheDir } from '../cni/directories.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { fileFailure } from '../files/failure.ts';
import { putFile } from '../files/put-file.ts';
import { removeFile } from '../files/remove-file.ts';
import { sweepUnfinished } from '../files/unfinished.ts';
import { type AttachmentId, type CachedAttachment, parseRecord, renderAttachment } from './cache-record.ts';

/** Where the reference keeps its files; shared with every runtime built on it. */
export const DEFAULT_CACHE_DIR = cniCacheDir({});

/**
 * The file of an attachment.
 * @throws CniError 7 when a part is empty or would lead elsewhere
 */
export function cacheFileOf(dir: string, { network, containerId, ifname }: AttachmentId): string {
  if ([network, containerId, ifname].every(part => part !== '' && !/[/\0]/.test(part))) {
    return join(dir, 'results', `${network}-${containerId}-${ifname}`);
  }
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot name cached result: it needs a network ("${network}"), a container id ("${containerId}") and an interface ("${ifname}"), without "/"`,
  );
}

/**
 * The attachment on record, or undefined when there is none.
 * @throws CniError 6 when its file is damaged or of another kind, 5 when it cannot be read, 7 for an impossible id
 */
export function readAttachment(dir: string, id: AttachmentId): CachedAttachment | undefined {
  const file = cacheFileOf(dir, id);
  const text = readIfThere(file);
  if (text === undefined) return undefined;
  const attachment = parseRecord(text, file, id);
  return sameId(attachment, id) ? attachment : undefined;
}

/**
 * Records an attachment: written beside the file, then renamed, so that nobody meets half of it.
 * @throws CniError 5
 */
export function writeAttachment(dir: string, attachment: CachedAttachment): void {
  // Not synced: what a power failure could tear is about namespaces that the same failure ends.
  putFile(cacheFileOf(dir, attachment), renderAttachment(attachment), { what: 'cached result' });
}

/** Removes what processes left that were killed while they recorded an attachment. */
export function sweepCache(dir: string): void {
  sweepUnfinished(join(dir, 'results'));
}

/**
 * Forgets an attachment; one that is not there is fine.
 * @throws CniError 5
 */
export function removeAttachment(dir: string, id: AttachmentId): void {
  const file = cacheFileOf(dir, id);
  if (isOfAnother(file, id)) return;
  removeFile(file, 'cached result');
}

/** Which attachments are meant; what is left out is every one. */
export interface AttachmentFilter {
  readonly network?: string;
  readonly containerId?: string;
}

/** What a cache holds. */
export interface AttachmentList {
  /** Sorted by file. */
  readonly attachments: readonly CachedAttachment[];
  /** Files that are no records or damaged ones: whose they are, only their names might tell. */
  readonly damaged: readonly CniError[];
}

/**
 * The attachments on record. Files of libcni 0.7 name their attachment only by the file's name and count where that
 * has one reading. A file that cannot be used hides no other.
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

/** Names that begin with a dot are of records being written. */
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

/** Undefined for a directory, and for a file that has gone meanwhile. */
function readRecord(file: string, name: string): CachedAttachment | undefined {
  if (statSync(file, { throwIfNoEntry: false })?.isDirectory()) return undefined;
  const text = readIfThere(file);
  if (text === undefined) return undefined;
  const [network = '', containerId = '', ifname = '', ...more] = name.split('-');
  return parseRecord(text, file, more.length ? undefined : { network, containerId, ifname });
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw fileFailure('read cached result', file, cause);
  }
}

/** "-" may be part of all three names, so that another attachment can have the same file: its fields decide. */
function isOfAnother(file: string, id: AttachmentId): boolean {
  try {
    const text = readIfThere(file);
    return text !== undefined && !sameId(parseRecord(text, file, id), id);
  } catch {
    return false;
  }
}

function sameId(a: AttachmentId, b: AttachmentId): boolean {
  return a.network === b.network && a.containerId === b.containerId && a.ifname === b.ifname;
}
