// What is known of an attachment, how is what is unfinished of it noted, and what does that say beside its entry?
//
// An attachment is made here, and nowhere else, from its entry in libcni's cache (entries.ts), from its note, or from both. A note exists only while something is unfinished: an ADD that has begun, a change, a deletion. Only the operation that has the attachment's lock (lock.ts) writes it, whole, and renames it into place. Decoded by hand: a
// schema library takes 3 ms to start, which every DEL would pay.
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import {
  type AttachmentId,
  cacheFileOf,
  describeAttachment,
  digestOf,
  directoryOf,
  fileNameOf,
  keyOf,
  sameAttachment,
} from '../cni/attachment.ts';
import {
  cniCacheDir,
  lockScopeOf,
  runDir,
  runnerJournals,
  stateDir as usualStateDir,
} from '../cni/directories.ts';
import { attempt, CniError, decodingFailure, ErrorCode, invalidConfig } from '../cni/errors.ts';
import { defined, isObject, type JsonObject, tryParse } from '../cni/json.ts';
import { isOfEarlierBoot } from '../files/process-stat.ts';
import { putFile, putNewFile, removeFile, sweepUnfinished } from '../files/put-file.ts';
import {
  fileExists,
  fileFailure,
  inDirectory,
  namesIfThere,
  UNREADABLE,
  unlessThere,
} from '../files/read-file.ts';
import {
  type Entry,
  isPair,
  type Made,
  type MadeByUs,
  readEvenAside,
  removeEntry,
  renderEntry,
} from './entries.ts';
import { findGeneration, type Generation } from './generation.ts';
import type { Runner } from './lock.ts';

/** Directory of notes, by network: one for each attachment of which something is unfinished, and no others. */
export function notesDir(stateDir: string): string {
  return join(stateDir, 'unsettled');
}

/** The note of an attachment: `unsettled/<network>/<container id>:<interface>`. */
export function noteFileOf(stateDir: string, id: AttachmentId): string {
  return join(notesDir(stateDir), directoryOf(id.network), fileNameOf(id));
}

/** Directory of links to the directories of libcni's entries that a journal has used: nothing else says where its attachments are. */
function cachesDir(stateDir: string): string {
  return join(stateDir, 'caches');
}

/** What an ADD is about to do; or, if that had succeeded before, what a change or a deletion begins with. */
export interface Intent extends Omit<Entry, 'made'>, Omit<MadeByUs, 'op' | 'time' | 'scope'> {
  /** Where its entry is, or will be. */
  readonly cacheDir: string;
  /** Another runtime made the attachment, and deletes it. Who made it, when and how is not known then. */
  readonly foreign?: true | undefined;
  /** Of such a one that is being changed: what the first plugin of its ADD has noted (generation.ts). */
  readonly generation?: string;
  /** The ADD that made it, or begins to. */
  readonly runner: Runner;
}

/** What an attachment was configured with, as far as it can be changed while the container runs. */
export type Settings = Pick<Intent, 'capabilityArgs' | 'source'>;

/** A change of a running attachment that has begun. */
export interface PendingChange {
  readonly to: Settings;
  /** Indexes of the plugins that are called, which may have changed their part. */
  readonly plugins: readonly number[];
}

/** A failure as a note keeps it. */
export interface RecordedError {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
  /** Type and index of the plugin that failed, if one did. */
  readonly plugin?: string;
  readonly index?: number;
}

/** What a note says. A settled attachment is `attached`, and has nothing of the rest. */
interface Progress {
  /**
   * `adding`: an ADD has begun and not ended. `attached`: it succeeded. `deleting`: a DEL has begun. `failed`: a DEL, or
   * the undo of a failed ADD, did not succeed and waits for its next attempt.
   */
  readonly phase: 'adding' | 'attached' | 'deleting' | 'failed';
  /** Whether the ADD succeeded, regardless of later operations. */
  readonly added: boolean;
  /** Index of the last plugin of an unfinished ADD that may have been called; -1 for none. */
  readonly segment: number;
  /** Operations that have begun and not reported their end, oldest first. */
  readonly runners: readonly Runner[];
  /** A change that has begun and neither succeeded nor been undone: the kernel may have either settings, or a part of each. */
  readonly change: (PendingChange & { readonly op: string }) | undefined;
  /** Number of failed DELs. */
  readonly attempts: number;
  readonly lastAttempt: string | undefined;
  readonly lastErrors: readonly RecordedError[];
}

/**
 * An attachment with all that files say of it: what its ADD was called with and gave, who made it and where, and what of it is unfinished.
 * {@link pastOf} says what follows from that now.
 */
export interface KnownAttachment extends Intent, Progress {
  /** The note, if there is one; else the entry. */
  readonly file: string;
  /** Whether it was read from a note. */
  readonly isNoted: boolean;
  /** The journal that has it; undefined if another runtime made it, and nothing is unfinished of it but a change. */
  readonly stateDir?: string | undefined;
  /** libcni's entry of it; undefined if there is none, or if it cannot be used. */
  readonly entry?: Entry | undefined;
}

const NOTHING_UNFINISHED: Progress & Pick<KnownAttachment, 'isNoted'> = {
  ...{ isNoted: false, phase: 'attached', added: true, segment: -1, runners: [], change: undefined },
  ...{ attempts: 0, lastAttempt: undefined, lastErrors: [] },
};

/**
 * A settled attachment, always the same object for an entry: the watch lists the same again and again.
 * @param journals whose attachments are ours; that of any other counts as another runtime's
 */
export function ofEntry(entry: Entry, cacheDir: string, journals: readonly string[]): KnownAttachment {
  const { made, ...known } = entry;
  const isOurs = (stateDir: string) => made?.op !== undefined && made.scope === lockScopeOf(stateDir);
  const stateDir = journals.find(isOurs);
  const before = settled.get(entry);
  if (before && before.stateDir === stateDir) return before;
  const ours = (stateDir === undefined ? {} : made) as MadeByUs & Made;
  const { op = '', time = '', scope: _, change: __, ...by } = ours;
  const whose = stateDir === undefined ? { foreign: true as const } : { stateDir };
  const one: KnownAttachment = {
    ...{ ...known, netnsIdentity: undefined, boot: '', owner: '', pluginDirs: [], executables: [] },
    ...{ ...NOTHING_UNFINISHED, ...by, ...whose, cacheDir, entry },
    runner: { pid: 0, start: '', pidns: '', op, time },
    // Its content may name an attachment that no file can be of.
    file: attempt(() => cacheFileOf(cacheDir, entry)) ?? '',
  };
  settled.set(entry, one);
  return one;
}

const settled = new WeakMap<Entry, KnownAttachment>();

/** The entry that an attachment of a journal stands for. @param change the operation of its last change */
export function entryOf(stateDir: string, intent: Intent, change?: string): Entry {
  const { network, containerId, ifname, netns, args, capabilityArgs, source, result } = intent;
  const known = { network, containerId, ifname, netns, args, capabilityArgs, source, result };
  const changed = defined({ change });
  if (intent.foreign) return change === undefined ? known : { ...known, made: changed };
  const { boot, netnsIdentity, netnsCookie, hostCookie, owner, request, pluginDirs, executables } = intent;
  const { op, time } = intent.runner;
  const where = { boot, netnsIdentity, ...defined({ netnsCookie, hostCookie }) };
  const by = { owner, ...defined({ request }), pluginDirs, executables };
  return { ...known, made: { op, time, ...where, ...by, scope: lockScopeOf(stateDir), ...changed } };
}

/** An ADD that has begun, before its first plugin. */
export function begunAdd(intent: Intent, file: string): KnownAttachment {
  const begun = { phase: 'adding', added: false, runners: [intent.runner], isNoted: true } as const;
  return { ...intent, ...NOTHING_UNFINISHED, ...begun, file };
}

/** Whether an entry is of the same ADD. An unfinished ADD has none: one that is there is the outcome, or a later ADD's. */
export function isEntryOf({ made, ...entry }: Entry, one: KnownAttachment): boolean {
  if (!one.added) return false;
  if (!one.foreign) return made?.op === one.runner.op;
  return made?.op === undefined && renderEntry(entry) === renderEntry({ ...one, made: undefined });
}

/** Text that differs between an attachment and a later one of the same name: the ADD of ours, and its entry. */
export function lifeOf({ foreign, runner, entry }: KnownAttachment): string {
  // The runner of another runtime's is that of a change.
  return lifeIn(entry, foreign ? '' : runner.op);
}

/** The same of one of which only the entry is known. */
export function lifeIn(entry: Entry | undefined, op = ''): string {
  return `${op} ${entry ? renderEntry(entry) : ''}`;
}

/** Index of the last plugin that may have begun to work: recovery has to undo all up to it. */
export function lastBegun({ added, segment }: KnownAttachment, plugins: number): number {
  return added ? plugins - 1 : Math.min(segment, plugins - 1);
}

/**
 * What is known of an attachment that a runner of this journal made, or that is being changed; undefined if it is unknown, or another
 * runtime's.
 * @param whenOver called if there is a note that is over
 * @throws CniError 6 when its note is damaged, 5 when it cannot be read
 */
export function readRecord(
  stateDir: string,
  id: AttachmentId,
  whenOver?: (note: KnownAttachment) => void,
): KnownAttachment | undefined {
  const file = noteFileOf(stateDir, id);
  const note = readNote(file, stateDir);
  if (note) {
    if (!sameAttachment(note, id)) throw misplaced(note, file);
    const one = standing(stateDir, note);
    if (!one?.isNoted) whenOver?.(note);
    return one;
  }
  for (const dir of cacheDirsOf(stateDir)) {
    const entry = tryEntry(dir, id);
    const one = entry && ofEntry(entry, dir, [stateDir]);
    if (one?.stateDir !== undefined) return one;
  }
  return undefined;
}

export interface Places {
  /** Of other runtimes' entries; without one, only those of the journals are read. */
  readonly cacheDir?: string;
  /** State directories. */
  readonly journals?: readonly string[];
}

/** The note in a file of a journal; undefined if it has gone. @throws CniError 6 and 5 */
export function noteIn(stateDir: string, file: string): KnownAttachment | undefined {
  const note = readNote(file, stateDir);
  if (note && noteFileOf(stateDir, note) !== file) throw misplaced(note, file);
  return note;
}

/**
 * What entries and notes say together: those of other runtimes in the caller's own directory, then those of each journal in turn. The notes
 * have to be read first, since an ADD removes its note once it has an entry.
 * @param listed entries by directory
 */
export function joinKnown(
  { cacheDir, journals = [] }: Places,
  listed: ReadonlyMap<string, readonly Entry[]>,
  notes: readonly KnownAttachment[],
): KnownAttachment[] {
  const entries = new Map(listed);
  const noted = notes.flatMap(note => {
    const own = entries.get(note.cacheDir) ?? [];
    const found = own.find(one => keyOf(one) === keyOf(note)) ?? entryOrUnusable(note.cacheDir, note);
    if (typeof found === 'object' && !own.includes(found)) entries.set(note.cacheDir, [...own, found]);
    const one = standingBy(note.stateDir ?? '', note, found);
    // While a change of what another runtime made is unfinished, that has a note, too.
    return one?.isNoted && !(one.foreign && one.phase === 'attached') ? one : [];
  });
  const taken = new Set(noted.flatMap(one => [one.entry, `${one.stateDir}\n${keyOf(one)}`]));
  const settled = [...entries].flatMap(([dir, list]) => {
    const free = list.filter(entry => !taken.has(entry)).map(entry => ofEntry(entry, dir, journals));
    return free.filter(one => !taken.has(`${one.stateDir}\n${keyOf(one)}`));
  });
  const of = (stateDir: string) => [...noted, ...settled].filter(one => one.stateDir === stateDir);
  const theirs = settled.filter(one => one.stateDir === undefined && one.cacheDir === cacheDir);
  return [...theirs, ...journals.flatMap(of)];
}

/** Files of the notes of a network, or of all. @throws CniError 5 */
export function noteFiles(stateDir: string, network: string | undefined): string[] {
  const root = notesDir(stateDir);
  const names = network === undefined ? listNames(root) : [directoryOf(network)];
  return names.flatMap(name => {
    const dir = join(root, name);
    return listNames(dir, hidden => sweepUnfinished(dir, hidden)).map(one => join(dir, one));
  });
}

/**
 * What the directories of entries are that a journal has used. The usual one is known even if the state directory was lost.
 * @throws CniError 5 when that cannot be listed
 */
export function cacheDirsOf(stateDir: string): string[] {
  const dir = cachesDir(stateDir);
  const targetOf = (name: string) => attempt(() => readlinkSync(join(dir, name)));
  const noted = namesIfThere(dir, 'directories of entries', UNREADABLE).flatMap(
    name => targetOf(name)?.slice(MARK.length) ?? [],
  );
  const ours = usualStateDir();
  const isUsual = stateDir === ours || stateDir === runnerJournals(ours).delegates;
  return isUsual ? [...new Set([cniCacheDir(), ...noted])] : noted;
}

/** Before the path in a link: whatever walks through the state directory must not get to the entries. */
const MARK = 'at:';

/** An entry, or one that was taken aside to replace it; undefined also for one that cannot be used. */
export function tryEntry(cacheDir: string, id: AttachmentId): Entry | undefined {
  const entry = entryOrUnusable(cacheDir, id);
  return entry === 'unusable' ? undefined : entry;
}

/** The same, but tells that it cannot be used. */
function entryOrUnusable(cacheDir: string, id: AttachmentId): Entry | 'unusable' | undefined {
  try {
    return readEvenAside(cacheDir, id);
  } catch {
    return 'unusable';
  }
}

/** What a note says, or its entry if the note is over; undefined if it is over and the entry is not of this journal. */
export function standing(stateDir: string, note: KnownAttachment): KnownAttachment | undefined {
  return standingBy(stateDir, note, entryOrUnusable(note.cacheDir, note));
}

/** The same, with the entry as it was read. */
function standingBy(
  stateDir: string,
  note: KnownAttachment,
  entry: Entry | 'unusable' | undefined,
): KnownAttachment | undefined {
  if (entry === 'unusable') return note;
  // A DEL had ended but for its note; only what failed, or never had an entry, may have left something.
  if (entry === undefined) return !note.added || note.attempts > 0 ? note : undefined;
  const isCommitted = note.change !== undefined && entry.made?.change === note.change.op;
  if (!isCommitted && isEntryOf(entry, note)) return { ...note, entry };
  const later = ofEntry(entry, note.cacheDir, [stateDir]);
  return later.stateDir === undefined ? undefined : later;
}

/** Human-readable evidence that an entry is of a later ADD than a record. */
export function findLaterEntry(record: KnownAttachment): string | undefined {
  const entry = tryEntry(record.cacheDir, record);
  if (entry === undefined || isEntryOf(entry, record)) return undefined;
  return `cached result "${cacheFileOf(record.cacheDir, record)}" belongs to a later ADD`;
}

/** The same, or evidence that a later ADD has begun: its first plugin writes its generation, in this boot, before it makes anything. */
export function findLaterAdd(
  record: KnownAttachment,
  env: Readonly<Record<string, string | undefined>> | undefined,
): string | undefined {
  const later = findLaterEntry(record);
  if (later !== undefined) return later;
  const begun = findGeneration(runDir(env), record);
  if (begun === undefined || isOfEarlierBoot(begun, env)) return undefined;
  const isLater = isOfEarlierBoot(record, env) || isOfOthers(begun, record);
  return isLater ? 'a plugin has started an ADD of it since' : undefined;
}

/**
 * Whether the note is of an ADD that is on no record of ours. Nothing tells if the network is one of a pod and named like the list that
 * names the delegate runner: the note may be that of the runtime's call of the runner.
 */
function isOfOthers({ isOurs, token }: Generation, { generation, network, owner }: KnownAttachment): boolean {
  return !isOurs && token !== generation && owner.split(' ')[1] !== network;
}

/** Says that a record goes although nothing was deleted by it. @param later evidence of the later ADD, human-readable */
export function madeAgain({ network, containerId, ifname, file }: KnownAttachment, later: string): CniError {
  return invalidConfig(
    `Cannot delete interface "${ifname}" of container "${containerId}" of network "${network}" by "${file}": it has since been attached again (${later}); the record is dropped and the attachment stays`,
  );
}

/**
 * Begins the note of an ADD. Only with the lock of the attachment. An unreadable note is replaced.
 * @param segment as in {@link KnownAttachment}
 * @returns what it says
 * @throws CniError 5
 */
export function createNote(stateDir: string, intent: Intent, segment = -1): KnownAttachment {
  refuseRecord(stateDir, intent);
  const begun = begunAdd(intent, noteFileOf(stateDir, intent));
  return writeNote(stateDir, { ...begun, stateDir, segment, isNoted: false });
}

/** @throws CniError 5 if there is one, also if it cannot be read at all: then it may be a good one */
function refuseRecord(stateDir: string, id: AttachmentId): void {
  const file = noteFileOf(stateDir, id);
  try {
    const note = readNote(file);
    if (note === undefined || !standing(stateDir, note)?.isNoted) return;
  } catch (error) {
    if (!(error instanceof CniError && error.code === ErrorCode.decodingFailure)) throw error;
    rmSync(file, { recursive: true, force: true });
    return;
  }
  throw new CniError(
    ErrorCode.ioFailure,
    `Cannot write note "${file}": a process without its lock has attached it; call ADD again`,
  );
}

/** Notes an attachment of an earlier boot, unless it has a note: an ADD may have begun since it was read. @throws CniError 5 */
export function noteIfUnnoted(stateDir: string, record: KnownAttachment): void {
  const file = noteFileOf(stateDir, record);
  keepCacheDir(stateDir, record.cacheDir);
  try {
    unlessThere(() => putNewFile(file, renderNote(record)));
  } catch (cause) {
    throw fileFailure('write note', file, cause);
  }
}

/**
 * Writes a note, replacing an existing one.
 * @returns the same as noted
 * @throws CniError 5
 */
export function writeNote(stateDir: string, record: KnownAttachment): KnownAttachment {
  if (!record.isNoted) keepCacheDir(stateDir, record.cacheDir);
  putFile(noteFileOf(stateDir, record), renderNote(record), { what: 'note' });
  return { ...record, isNoted: true };
}

/** Removes a note. A missing one is ignored. @throws CniError 5 */
export function dropNote(stateDir: string, id: AttachmentId): void {
  removeFile(noteFileOf(stateDir, id), 'note');
}

/**
 * Removes what a journal has of an attachment: its own entries, and damaged ones, then the note. Missing ones are ignored.
 * @throws CniError 5
 */
export function dropRecord(stateDir: string, id: AttachmentId): void {
  for (const dir of cacheDirsOf(stateDir)) {
    const entry = entryOrUnusable(dir, id);
    if (entry === 'unusable' || (entry && ofEntry(entry, dir, [stateDir]).stateDir)) removeEntry(dir, id);
  }
  dropNote(stateDir, id);
}

/**
 * The note in a file, or undefined if there is none.
 * @throws CniError 6 when it is damaged or not a note, 5 when it cannot be read
 */
export function readNote(file: string, stateDir?: string): KnownAttachment | undefined {
  let fd: number;
  try {
    // Checking first is cheaper than an error that is thrown and caught.
    if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return undefined;
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    if (code === 'ELOOP') throw unfit(file, 'it is a symbolic link');
    throw fileFailure('read note', file, cause);
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw unfit(file, 'it is not a regular file');
    if (stat.size > MAX_BYTES) throw unfit(file, `its size of ${stat.size} bytes exceeds that of any note`);
    return { ...parseNote(readFileSync(fd, 'utf8'), file), stateDir };
  } catch (cause) {
    throw cause instanceof CniError ? cause : fileFailure('read note', file, cause);
  } finally {
    closeSync(fd);
  }
}

/** A result is at most 16 MiB. */
const MAX_BYTES = 64 * 1024 * 1024;

/** Says where the entries of a journal are. @throws CniError 5 */
export function keepCacheDir(stateDir: string, cacheDir: string): void {
  const link = join(cachesDir(stateDir), digestOf(cacheDir));
  try {
    // Checking first is cheaper than an error that is thrown and caught.
    if (lstatSync(link, { throwIfNoEntry: false })) return;
    inDirectory(link, () => unlessThere(() => symlinkSync(`${MARK}${cacheDir}`, link)));
  } catch (cause) {
    throw fileFailure('note where entries are in', link, cause);
  }
}

function misplaced(id: AttachmentId, file: string): CniError {
  return unfit(file, `it is for ${describeAttachment(id)}`);
}

function unfit(file: string, problem: string): CniError {
  return decodingFailure(`Cannot read note "${file}": ${problem}`);
}

/**
 * Names in a directory, sorted; a missing directory is empty. Names with a leading dot, which are temporary files, are left out.
 * @param withHidden called with these, if there are any
 * @throws CniError 5
 */
function listNames(dir: string, withHidden?: (names: readonly string[]) => void): string[] {
  // Checking first is cheaper than an error that is thrown and caught; what is wrong, the listing says.
  const names = (attempt(() => fileExists(dir)) ?? true) ? namesIfThere(dir, 'records') : [];
  const visible = names.filter(name => !name.startsWith('.'));
  if (visible.length < names.length) withHidden?.(names.filter(name => name.startsWith('.')));
  return visible.sort();
}

/** Version of the layout; a note of another version is reported and left alone. */
const LAYOUT = 2;

/** A note: one line of JSON. */
export function renderNote({
  file: _,
  isNoted: _n,
  stateDir: _s,
  entry: _e,
  args,
  ...note
}: KnownAttachment): string {
  return `${JSON.stringify({ record: LAYOUT, ...note, args })}\n`;
}

/**
 * What a note says.
 * @param file names it in the error
 * @throws CniError 6 when it is damaged or not a note
 */
export function parseNote(text: string, file: string): KnownAttachment {
  const object = tryParse(text);
  if (!isObject(object)) throw unfit(file, 'it is not a JSON object');
  if (object.record !== LAYOUT) {
    const found = object.record === undefined ? 'none' : JSON.stringify(object.record);
    throw unfit(file, `expected layout ${LAYOUT} in "record", found ${found}`);
  }
  const problem = findProblem(object, NOTE);
  if (problem !== undefined) throw unfit(file, problem);
  const { record: _, netnsIdentity, change, lastAttempt, ...note } = object;
  return { ...note, netnsIdentity, change, lastAttempt, file, isNoted: true } as unknown as KnownAttachment;
}

/** A type that a value may have: its human-readable name, and its check. */
type FieldType = readonly [name: string, is: (value: unknown) => boolean];
type Shape = Readonly<Record<string, FieldType>>;

const isText = (value: unknown): boolean => typeof value === 'string';
const TEXT: FieldType = ['a string', isText];
const NAME: FieldType = ['a non-empty string', value => isText(value) && value !== ''];
const NUMBER: FieldType = ['a number', Number.isFinite];
const isIndex = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const INDEX: FieldType = ['an index', isIndex];
const OBJECT: FieldType = ['an object', isObject];

const optional = ([name, is]: FieldType): FieldType => [name, value => value === undefined || is(value)];
const listOf = ([name, is]: FieldType): FieldType => [
  `a list, each ${name}`,
  value => Array.isArray(value) && value.every(one => is(one)),
];
const exactly = (...values: readonly unknown[]): FieldType => [
  values.map(value => JSON.stringify(value)).join(' or '),
  value => values.includes(value),
];
const shaped = (name: string, shape: Shape): FieldType => [
  name,
  value => isObject(value) && findProblem(value, shape) === undefined,
];

const RUNNER = shaped('a runner', {
  pid: NUMBER,
  start: TEXT,
  pidns: TEXT,
  op: TEXT,
  time: TEXT,
  deadlineMs: optional(NUMBER),
});

const SETTINGS = shaped('settings', { capabilityArgs: OBJECT, source: TEXT });

const ERROR = shaped('an error', {
  code: NUMBER,
  msg: TEXT,
  details: optional(TEXT),
  plugin: optional(TEXT),
  index: optional(NUMBER),
});

const NOTE: Shape = {
  network: NAME,
  containerId: NAME,
  ifname: NAME,
  netns: TEXT,
  netnsIdentity: optional(TEXT),
  netnsCookie: optional(TEXT),
  hostCookie: optional(TEXT),
  boot: TEXT,
  owner: TEXT,
  args: listOf(['two strings', isPair]),
  capabilityArgs: OBJECT,
  source: TEXT,
  pluginDirs: listOf(TEXT),
  executables: listOf(TEXT),
  cacheDir: TEXT,
  result: optional(OBJECT),
  request: optional(TEXT),
  foreign: optional(exactly(true)),
  generation: optional(TEXT),
  runner: RUNNER,
  phase: exactly('adding', 'attached', 'deleting', 'failed'),
  added: exactly(true, false),
  segment: ['an index, or -1', value => value === -1 || isIndex(value)],
  runners: listOf(RUNNER),
  change: optional(shaped('a change', { to: SETTINGS, plugins: listOf(INDEX), op: TEXT })),
  attempts: INDEX,
  lastAttempt: optional(TEXT),
  lastErrors: listOf(ERROR),
};

function findProblem(object: JsonObject, shape: Shape): string | undefined {
  for (const [key, [name, is]] of Object.entries(shape)) {
    const value = Object.hasOwn(object, key) ? object[key] : undefined;
    if (is(value)) continue;
    const found = value === undefined ? 'it is missing' : `found ${JSON.stringify(value).slice(0, 100)}`;
    return `"${key}" must be ${name}, ${found}`;
  }
  return undefined;
}
