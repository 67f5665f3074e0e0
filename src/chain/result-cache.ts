// Which attachments exist, and what did their ADD say? (libcni's files, in libcni's place)
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';

/** Where the reference keeps its files; shared with every runtime built on it. */
export const DEFAULT_CACHE_DIR = '/var/lib/cni';

/** What names an attachment: one ADD on one network for one interface of one container. */
export interface AttachmentId {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
}

/** One ADD on record. */
export interface CachedAttachment extends AttachmentId {
  /** Empty when the file does not say. */
  readonly netns: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as it was at ADD; undefined in files of libcni 0.7, which hold the bare result. */
  readonly source: string | undefined;
  /** Result of the last link, in the version it names; undefined when the file holds none. */
  readonly result: JsonObject | undefined;
}

/** Kind of the current layout; a file of another kind is a bare result of libcni 0.7. */
const KIND = 'cniCacheV1';

/** The file of an attachment. All three parts must have been validated: they become part of a path. */
export function cacheFileOf(dir: string, { network, containerId, ifname }: AttachmentId): string {
  return join(dir, 'results', `${network}-${containerId}-${ifname}`);
}

/**
 * The attachment on record, or undefined when there is none.
 * @throws CniError 6 when its file is neither layout, 5 when it cannot be read
 */
export function readAttachment(dir: string, id: AttachmentId): CachedAttachment | undefined {
  const file = cacheFileOf(dir, id);
  const text = readIfThere(file);
  if (text === undefined) return undefined;
  const object = parseJson(text);
  if (!isObject(object)) {
    throw new CniError(
      ErrorCode.decodingFailure,
      `Cannot read cached result "${file}": it is not a JSON object`,
    );
  }
  if (object.kind !== KIND) return legacyAttachment(id, object);
  const attachment = attachmentOf(object);
  // "-" may be part of all three names, so that another attachment can have the same file: its fields decide.
  return attachment !== undefined && sameId(attachment, id) ? attachment : undefined;
}

/**
 * Records an attachment: written beside the file, then renamed, so that nobody meets half of it.
 * @throws CniError 5
 */
export function writeAttachment(dir: string, attachment: CachedAttachment): void {
  const file = cacheFileOf(dir, attachment);
  const fresh = `${join(dir, 'results')}/.${process.pid}-${performance.now()}.tmp`;
  try {
    mkdirSync(join(dir, 'results'), { recursive: true, mode: 0o700 });
    // No fsync: what a power failure could tear is about namespaces that the same failure ends.
    writeFileSync(fresh, renderAttachment(attachment), { flag: 'wx', mode: 0o600 });
    renameSync(fresh, file);
  } catch (cause) {
    discard(fresh);
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot write cached result "${file}": ${(cause as Error).message}`,
      {
        cause,
      },
    );
  }
}

/**
 * Forgets an attachment; one that is not there is fine.
 * @throws CniError 5
 */
export function removeAttachment(dir: string, id: AttachmentId): void {
  const file = cacheFileOf(dir, id);
  try {
    rmSync(file, { force: true });
  } catch (cause) {
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot remove cached result "${file}": ${(cause as Error).message}`,
      {
        cause,
      },
    );
  }
}

/**
 * Every attachment of a network on record, sorted by file. Files of libcni 0.7 name their attachment only by the
 * file's name and count where that has one reading.
 * @throws CniError 5 when the directory cannot be read; a missing one is empty
 */
export function listAttachments(dir: string, network: string): CachedAttachment[] {
  const results = join(dir, 'results');
  let names: string[];
  try {
    names = readdirSync(results).sort();
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot list cached results in "${results}": ${(cause as Error).message}`,
      {
        cause,
      },
    );
  }
  return names
    .filter(name => name.startsWith(`${network}-`))
    .flatMap(name => {
      const attachment = findAttachmentIn(join(results, name), name);
      return attachment?.network === network ? [attachment] : [];
    });
}

/** The bytes that libcni would write: its order of fields, empty ones left out. */
export function renderAttachment(attachment: CachedAttachment): string {
  const { netns, args, capabilityArgs, source, result } = attachment;
  return renderLikeGo({
    kind: KIND,
    containerId: attachment.containerId,
    config: Buffer.from(source ?? '').toString('base64'),
    ifName: attachment.ifname,
    networkName: attachment.network,
    ...(netns === '' ? {} : { netns }),
    ...(args.length ? { cniArgs: args } : {}),
    ...(Object.keys(capabilityArgs).length ? { capabilityArgs: sortKeys(capabilityArgs) } : {}),
    ...(result === undefined ? {} : { result: sortKeys(result) }),
  });
}

/** Without hiding why the file could not be written. */
function discard(fresh: string): void {
  try {
    unlinkSync(fresh);
  } catch {
    // It was never made.
  }
}

function attachmentOf(object: JsonObject): CachedAttachment | undefined {
  const { containerId, ifName, networkName, netns, config, cniArgs, capabilityArgs, result } = object;
  if (!isName(containerId) || !isName(ifName) || !isName(networkName)) return undefined;
  return {
    network: networkName,
    containerId,
    ifname: ifName,
    netns: typeof netns === 'string' ? netns : '',
    args: Array.isArray(cniArgs) ? cniArgs.filter(isPair) : [],
    capabilityArgs: isObject(capabilityArgs) ? capabilityArgs : {},
    source: isName(config) ? Buffer.from(config, 'base64').toString() : undefined,
    result: isObject(result) ? result : undefined,
  };
}

function legacyAttachment(id: AttachmentId, result: JsonObject): CachedAttachment {
  return { ...id, netns: '', args: [], capabilityArgs: {}, source: undefined, result };
}

/** Directories, files that cannot be read and files that are not JSON are no attachments, as in the reference. */
function findAttachmentIn(file: string, name: string): CachedAttachment | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
  const object = parseJson(text);
  if (!isObject(object)) return undefined;
  if (object.kind === KIND) return attachmentOf(object);
  const [network, containerId, ifname, ...more] = name.split('-');
  if (!network || !containerId || !ifname || more.length) return undefined;
  return legacyAttachment({ network, containerId, ifname }, object);
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot read cached result "${file}": ${(cause as Error).message}`,
      {
        cause,
      },
    );
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function sameId(a: AttachmentId, b: AttachmentId): boolean {
  return a.network === b.network && a.containerId === b.containerId && a.ifname === b.ifname;
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isPair(value: unknown): value is [string, string] {
  return Array.isArray(value) && value.length === 2 && value.every(part => typeof part === 'string');
}

/** encoding/json writes these five characters escaped. */
function renderLikeGo(value: JsonObject): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** encoding/json writes the keys of a map in order of their bytes. */
function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (!isObject(value)) return value;
  const sorted = Object.entries(value).sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return Object.fromEntries(sorted.map(([key, member]) => [key, sortKeys(member)]));
}
