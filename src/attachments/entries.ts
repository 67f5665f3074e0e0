// Which attachments exist, and what was the result of their ADD, by libcni's files?

import { lstatSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type AttachmentId, cacheFileOf, digestOf, sameAttachment, toId } from '../cni/attachment.ts';
import type { CniArgs } from '../cni/env.ts';
import { attempt, CniError, decodingFailure, ErrorCode, orTell } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf, objectsIn, tryParse } from '../cni/json.ts';
import {
  nameNewFile,
  putFile,
  removeFile,
  sweepUnfinished,
  unfinishedName,
  writeNewFile,
} from '../files/put-file.ts';
import { fileFailure, namesIfThere, readIfThere, unlessThere } from '../files/read-file.ts';
import type { NetnsIdentity } from '../sys/netns-identity.ts';

/** A cached result: a settled attachment, with the configuration and arguments of its ADD. */
export interface Entry extends AttachmentId {
  /** Empty when neither the file nor its result names it. */
  readonly netns: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as it was at ADD; empty for files of libcni 0.7, which hold the bare result. */
  readonly source: string;
  /** Result of the last plugin, in the version it names; undefined when the file holds none. */
  readonly result?: JsonObject | undefined;
  /** What our runner adds; undefined if another runtime made the attachment and ours has not changed it. */
  readonly made?: Made | undefined;
}

/** What only our runner knows of an attachment. All but `change` is absent if another runtime made it. */
export interface Made extends Partial<MadeByUs> {
  /** The operation of the last `catena set`. */
  readonly change?: string;
}

/** Which ADD of ours made an attachment, and where. */
export interface MadeByUs extends NetnsIdentity {
  /** The operation, as lock.ts names it, and when it began. */
  readonly op: string;
  readonly time: string;
  readonly boot: string;
  /** The kernel's cookie of the network namespace that its runner worked in, unless the kernel did not report it. */
  readonly hostCookie?: string;
  /** The name of the program that ran the chain; may be empty. */
  readonly owner: string;
  /** The caller's request key: a second ADD with the same key returns the first one's result. */
  readonly request?: string;
  /** Directories in which plugins were looked up, and the executable found for each. */
  readonly pluginDirs: readonly string[];
  readonly executables: readonly string[];
  /** Which journal has it: that of the runner, of pods, or of their networks. */
  readonly scope: string;
}

/** Kind of the current layout; a file of another kind is a bare result of libcni 0.7. */
const KIND = 'cniCacheV1';

/** Our member, and its layout. */
const OURS = 'catena';
const LAYOUT = 1;

/** The bytes that libcni would write: its order of fields, empty ones left out; then our member. */
export function renderEntry(attachment: Entry): string {
  const { netns, args, capabilityArgs, source, result, made } = attachment;
  return renderLikeGo({
    kind: KIND,
    containerId: attachment.containerId,
    config: Buffer.from(source).toString('base64'),
    ifName: attachment.ifname,
    networkName: attachment.network,
    ...(netns === '' ? {} : { netns }),
    ...(args.length ? { cniArgs: args } : {}),
    ...(Object.keys(capabilityArgs).length ? { capabilityArgs: sortKeys(capabilityArgs) } : {}),
    ...(result === undefined ? {} : { result: sortKeys(result) }),
    ...(made === undefined ? {} : { [OURS]: { v: LAYOUT, ...made } }),
  });
}

/**
 * The attachment that a cached result describes.
 * @param file its path, for the error
 * @param id what the file's name says, which is all that the layout of libcni 0.7 has; undefined when the name is ambiguous
 * @throws CniError 6 when it is damaged or of another kind
 */
export function parseEntry(text: string, file: string, id: AttachmentId | undefined): Entry {
  const object = tryParse(text);
  if (!isObject(object)) throw damagedRecord(file, 'it is not a JSON object');
  if (object.kind === KIND) {
    const attachment = attachmentOf(object);
    if (attachment === undefined) throw damagedRecord(file, 'it does not name an attachment');
    return attachment;
  }
  if (object.kind !== undefined) {
    throw damagedRecord(file, `its kind is ${JSON.stringify(object.kind)}, not "${KIND}"`);
  }
  if (id?.network && id.containerId && id.ifname) {
    const netns = findSandbox(object, id.ifname);
    return { ...toId(id), netns, args: [], capabilityArgs: {}, source: '', result: object };
  }
  throw damagedRecord(file, 'its name does not identify an attachment');
}

function damagedRecord(file: string, problem: string): CniError {
  return decodingFailure(`Cannot read cached result "${file}": ${problem}`);
}

function attachmentOf(object: JsonObject): Entry | undefined {
  const field = (key: string) => memberOf(object, key);
  const [network, containerId, ifname] = [field('networkName'), field('containerId'), field('ifName')];
  if (!isName(network) || !isName(containerId) || !isName(ifname)) return undefined;
  const [netns, args, capabilityArgs] = [field('netns'), field('cniArgs'), field('capabilityArgs')];
  const [config, result] = [field('config'), field('result')];
  const made = madeOf(object[OURS]);
  return {
    network,
    containerId,
    ifname,
    netns: isName(netns) ? netns : findSandbox(result, ifname),
    args: Array.isArray(args) ? args.filter(isPair) : [],
    capabilityArgs: isObject(capabilityArgs) ? capabilityArgs : {},
    source: isName(config) ? Buffer.from(config, 'base64').toString() : '',
    result: isObject(result) ? result : undefined,
    ...(made === undefined ? {} : { made }),
  };
}

/** A member of another layout, or a damaged one, tells nothing: the attachment then counts as another runtime's. */
function madeOf(member: unknown): Made | undefined {
  if (!isObject(member) || member.v !== LAYOUT) return undefined;
  const { v: _, ...made } = member;
  const { change, op } = made;
  if (change !== undefined && typeof change !== 'string') return undefined;
  if (op === undefined) return change === undefined ? undefined : { change };
  const texts = ['op', 'time', 'boot', 'owner', 'scope'].map(key => made[key]);
  const more = ['netnsIdentity', 'netnsCookie', 'hostCookie', 'request'].map(key => made[key] ?? '');
  if (![...texts, ...more].every(one => typeof one === 'string')) return undefined;
  if (![made.pluginDirs, made.executables].every(isTexts)) return undefined;
  return made as Made;
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every(one => typeof one === 'string');
}

/**
 * The namespace in which the result has the interface. The libcni of Podman 4.3 and containerd 1.6 does not store the path
 * itself.
 */
function findSandbox(result: unknown, ifname: string): string {
  const own = objectsIn(result, 'interfaces').filter(one => memberOf(one, 'name') === ifname);
  return own.map(one => memberOf(one, 'sandbox')).find(isName) ?? '';
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/** Whether it is an argument: its key and its value. */
export function isPair(value: unknown): value is [string, string] {
  return isTexts(value) && value.length === 2;
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

/**
 * The attachment on record, or undefined if there is none.
 * @throws CniError 6 when its file is damaged or of another kind, 5 when it cannot be read, 7 for an impossible id
 */
export function readEntry(dir: string, id: AttachmentId): Entry | undefined {
  return ownEntryIn(cacheFileOf(dir, id), id);
}

function ownEntryIn(file: string, id: AttachmentId): Entry | undefined {
  const found = entryIn(file, id);
  return found && sameAttachment(found, id) ? found : undefined;
}

/** The entry in a file of that name, which may be another attachment's: all three names may contain "-". */
function entryIn(file: string, id: AttachmentId): Entry | undefined {
  const text = readIfThere(file, 'cached result');
  return text === undefined ? undefined : parseEntry(text, file, id);
}

/**
 * Writes a cached result: a temporary file, then renamed, so a reader never finds half of it.
 * @throws CniError 5
 */
export function writeEntry(dir: string, attachment: Entry): void {
  // Not synced: a power failure that tears the file also ends the namespaces it is about.
  putFile(cacheFileOf(dir, attachment), renderEntry(attachment), { what: 'cached result' });
}

/**
 * Replaces a cached result, but never one that another runtime has written since: the file is taken aside and looked at, and the
 * new one is linked to its name, which fails if there is one again. If the process dies, {@link putEntryBack} puts back what was taken.
 * @param isStill whether what was found, or nothing, is what the caller has seen; a damaged file is nothing
 * @throws CniError 5, also if what is there cannot be read
 */
export function replaceEntry(
  dir: string,
  attachment: Entry,
  isStill: (cached: Entry | undefined) => boolean,
): void {
  const file = cacheFileOf(dir, attachment);
  const results = dirname(file);
  const aside = asideOf(file);
  const fresh = join(results, unfinishedName());
  putEntryBack(dir, attachment);
  try {
    mkdirSync(results, { recursive: true, mode: 0o700 });
    writeNewFile(fresh, renderEntry(attachment));
    if (lstatSync(file, { throwIfNoEntry: false })) renameSync(file, aside);
    const cached = orTell(undefined, () => entryIn(aside, attachment), [ErrorCode.decodingFailure]);
    if (isStill(cached)) unlessThere(() => nameNewFile(fresh, file));
  } catch (cause) {
    throw cause instanceof CniError ? cause : fileFailure('replace cached result', file, cause);
  } finally {
    rmSync(fresh, { force: true });
    putEntryBack(dir, attachment);
  }
}

/**
 * Like {@link readEntry}, but also what {@link replaceEntry} has taken aside: its process has died, or is about to put
 * it back.
 * @throws CniError 5 and 6 as {@link readEntry}
 */
export function readEvenAside(dir: string, id: AttachmentId): Entry | undefined {
  return inPlaceOrAside(cacheFileOf(dir, id), file => ownEntryIn(file, id));
}

/** For a file that one change after another takes aside and puts back: each look can come between two of them. */
const LOOKS = 10;

/** A file that is neither in its place nor aside is looked for again: a change may have put it back in between. */
function inPlaceOrAside<T>(file: string, read: (path: string) => T | undefined, looks = 2): T | undefined {
  const aside = asideOf(file);
  for (let i = 0; i < looks; i++) {
    const found = read(file) ?? read(aside);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Removes what {@link replaceEntry} has taken aside and its process, which died, has not put back. @throws CniError 5 */
export function removeAside(dir: string, id: AttachmentId): void {
  removeFile(asideOf(cacheFileOf(dir, id)), 'cached result');
}

function asideOf(file: string): string {
  return join(dirname(file), `${ASIDE}${digestOf(basename(file))}`);
}

const ASIDE = '.catena-aside-';

/** Puts a cached result that was taken aside back, unless there is one again. @throws CniError 5 */
export function putEntryBack(dir: string, id: AttachmentId): void {
  const file = cacheFileOf(dir, id);
  const aside = asideOf(file);
  try {
    if (lstatSync(aside, { throwIfNoEntry: false }) === undefined) return;
    unlessThere(() => nameNewFile(aside, file));
    rmSync(aside, { force: true });
  } catch (cause) {
    throw fileFailure('put back cached result', file, cause);
  }
}

/** Removes temporary files of processes that were killed while they wrote a cached result. */
export function sweepCache(dir: string): void {
  sweepUnfinished(join(dir, 'results'));
}

/**
 * Removes a cached result. A missing one is ignored.
 * @throws CniError 5
 */
export function removeEntry(dir: string, id: AttachmentId): void {
  const file = cacheFileOf(dir, id);
  if (isOfAnother(file, id)) return;
  removeAside(dir, id);
  removeFile(file, 'cached result');
}

/** Selects attachments; a field that is left out matches every one. */
export interface EntryFilter {
  readonly network?: string;
  readonly containerId?: string;
}

/**
 * The attachments in the cache. Files of libcni 0.7 name their attachment only in the file name, and are listed if that
 * is unambiguous. An unusable file does not hide the others.
 * @throws CniError 5 when the directory cannot be read; a missing one is empty
 */
export function listEntries(dir: string, filter: EntryFilter = {}) {
  const results = join(dir, 'results');
  const names = new Set<string>();
  const aside = new Map<string, Entry>();
  for (let looks = 0; looks < LOOKS; looks++) {
    const listed = namesIfThere(results, 'cached results');
    for (const name of listed) names.add(name);
    const asides = listed.filter(name => name.startsWith(ASIDE));
    for (const name of asides) {
      const found = orTell(undefined, () => readRecord(join(results, name), name));
      if (found) aside.set(name, found);
    }
    // What was aside may be back under its name, which this list need not have.
    if (asides.every(name => aside.has(name))) break;
  }
  const entries: Entry[] = [];
  const damaged: CniError[] = [];
  for (const name of [...names].filter(one => mayHold(one, filter)).sort()) {
    const read = () => inPlaceOrAside(join(results, name), file => readRecord(file, name), LOOKS);
    const entry = orTell(problem => damaged.push(problem), read);
    if (entry !== undefined && isMeant(entry, filter)) entries.push(entry);
  }
  const missing = [...aside.values()].filter(
    one => isMeant(one, filter) && !entries.some(other => sameAttachment(one, other)),
  );
  return { entries: [...entries, ...missing], damaged };
}

/** Names that begin with a dot are temporary files. */
function mayHold(name: string, { network, containerId }: EntryFilter): boolean {
  if (name.startsWith('.')) return false;
  return (
    (network === undefined || name.startsWith(`${network}-`)) &&
    (containerId === undefined || name.includes(`-${containerId}-`))
  );
}

export function isMeant(attachment: AttachmentId, { network, containerId }: EntryFilter): boolean {
  return (
    (network === undefined || attachment.network === network) &&
    (containerId === undefined || attachment.containerId === containerId)
  );
}

/** Undefined for a directory, and for a file deleted since it was listed. */
function readRecord(file: string, name: string): Entry | undefined {
  const text = readIfThere(file, 'cached result', ['ENOENT', 'EISDIR']);
  if (text === undefined) return undefined;
  const [network = '', containerId = '', ifname = '', ...more] = name.split('-');
  const isTold = more.length === 0 && !name.startsWith('.');
  return parseEntry(text, file, isTold ? { network, containerId, ifname } : undefined);
}

/** Whether a file is of another attachment: its fields decide. */
export function isOfAnother(file: string, id: AttachmentId): boolean {
  const found = attempt(() => entryIn(file, id));
  return found !== undefined && !sameAttachment(found, id);
}
