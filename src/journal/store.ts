// Which attachments do we know, and what of them is unfinished?
//
// libcni's entry is the truth about every settled attachment (entry.ts); a note exists only while something is unfinished (record.ts). An
// ADD commits by the rename of its entry, a DEL by its removal, and only then does the note go. So a note can be over: its process died in
// between, or another runtime has made or deleted the attachment since. The entry tells. Who meets a note that is over passes it over, and
// who has the lock removes it.
//
// Nothing is synced. This is about kernel state, which a power failure ends as well, and attachments of an earlier boot are taken down
// whether their files are complete or not.
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { type AttachmentId, digestOf, keyOf, sameAttachment } from '../cni/attachment.ts';
import { cniCacheDir, lockScopeOf, runnerJournals, stateDir as usualStateDir } from '../cni/directories.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { fileFailure } from '../files/failure.ts';
import { putOpenFile, removeFile, sweepUnfinished } from '../files/put-file.ts';
import { namesIn } from '../files/read-file.ts';
import { cacheFileOf, listAttachments, readAside, readAttachment, removeAttachment } from './entries.ts';
import { type CachedAttachment, type Made, renderAttachment } from './entry.ts';
import { isCutOff, isMissing, listNames, writeAll } from './files.ts';
import { parseNote, renderIntent, renderLine } from './lines.ts';
import { cachesDir, directoryOf, noteFileOf, notesDir } from './place.ts';
import {
  type AttachmentRecord,
  type Intent,
  type KnownAttachment,
  type Line,
  toRemembered,
} from './record.ts';

/** A note that is open for appending lines. */
export interface OpenNote {
  /** @throws CniError 5; then the line was not written at all */
  append(line: Line): void;
  close(): void;
}

/** What a state directory and the entries that it names hold. */
export interface RecordList {
  /** Those with a note, then the settled ones of each directory of entries, sorted by file. */
  readonly records: readonly AttachmentRecord[];
  /** Notes and entries that are unreadable, with the reason. */
  readonly damaged: readonly CniError[];
}

/** What is in the files of a node. */
export interface KnownList {
  /** Those of other runtimes, then those of each journal in turn: two journals may have one of the same name. */
  readonly attachments: readonly KnownAttachment[];
  /** Files that cannot be used, with the reason. */
  readonly damaged: readonly CniError[];
}

/** The entry that a record of ours stands for. */
export function entryOf(stateDir: string, intent: Omit<Intent, 'added'>, change?: string): CachedAttachment {
  const { network, containerId, ifname, netns, args, capabilityArgs, source, result } = intent;
  const known = { network, containerId, ifname, netns, args, capabilityArgs, source, result };
  const changed = change === undefined ? {} : { change };
  if (intent.foreign) return change === undefined ? known : { ...known, made: changed };
  const { boot, netnsIdentity, netnsCookie, hostCookie, owner, request, pluginDirs, executables } = intent;
  const { op, time } = intent.runner;
  const made: Made = {
    op,
    time,
    boot,
    netnsIdentity,
    ...(netnsCookie === undefined ? {} : { netnsCookie }),
    ...(hostCookie === undefined ? {} : { hostCookie }),
    owner,
    ...(request === undefined ? {} : { request }),
    pluginDirs,
    executables,
    scope: lockScopeOf(stateDir),
    ...changed,
  };
  return { ...known, made };
}

/** The settled attachment of an entry, always the same object; undefined if no runner of this journal made it. */
export function recordOf(
  stateDir: string,
  entry: CachedAttachment,
  cacheDir: string,
): AttachmentRecord | undefined {
  if (entry.made?.scope !== lockScopeOf(stateDir)) return undefined;
  const record = records.get(entry) ?? settledBy(entry, cacheDir);
  if (record) records.set(entry, record);
  return record;
}

/** The watch lists the same again and again. */
const records = new WeakMap<CachedAttachment, AttachmentRecord>();

function settledBy(entry: CachedAttachment, cacheDir: string): AttachmentRecord | undefined {
  const { made = {}, ...known } = entry;
  const { op, time, scope: _, change: __, ...more } = made;
  if (op === undefined) return undefined;
  const runner = { pid: 0, start: '', pidns: '', op, time: time ?? '' };
  return { ...settled(known, cacheDir), ...(more as Intent), runner };
}

/** A settled attachment that another runtime made, for a change of it: everything but the entry is of now. */
export function recordOfForeign(
  entry: CachedAttachment,
  intent: Pick<Intent, 'netnsIdentity' | 'netnsCookie' | 'hostCookie' | 'boot' | 'pluginDirs' | 'runner'>,
  cacheDir: string,
  generation: string | undefined,
): AttachmentRecord {
  const { made: _, ...known } = entry;
  const noted = generation === undefined ? {} : { generation };
  return { ...settled(known, cacheDir), ...intent, ...noted, foreign: true, runners: [] };
}

function settled(entry: CachedAttachment, cacheDir: string): AttachmentRecord {
  const { network, containerId, ifname, netns, args, capabilityArgs, source = '', result } = entry;
  return {
    ...{ network, containerId, ifname, netns, args, capabilityArgs, source, cacheDir },
    ...(result === undefined ? {} : { result }),
    ...{ netnsIdentity: undefined, boot: '', owner: '', pluginDirs: [], executables: [] },
    runner: { pid: 0, start: '', pidns: '', op: '', time: '' },
    file: cacheFileOf(cacheDir, entry),
    ...{ isNoted: false, phase: 'attached', added: true, segment: -1, runners: [], change: undefined },
    ...{ attempts: 0, lastAttempt: undefined, lastErrors: [], unreadable: 0 },
  };
}

/**
 * What is known of an attachment that a runner of this journal made, or that is being changed; undefined if it is unknown, or another
 * runtime's.
 * @throws CniError 6 when its note is damaged, 5 when it cannot be read
 */
export function readRecord(stateDir: string, id: AttachmentId): AttachmentRecord | undefined {
  const file = noteFileOf(stateDir, id);
  const note = readNote(file);
  if (note) {
    if (!sameAttachment(note, id)) throw misplaced(note, file);
    return standing(stateDir, note, entryOrUnusable(note.cacheDir, id));
  }
  for (const dir of cacheDirsOf(stateDir)) {
    const entry = tryEntry(dir, id);
    const record = entry && recordOf(stateDir, entry, dir);
    if (record) return record;
  }
  return undefined;
}

/**
 * The records of a network, or of all. An unusable file does not hide the others.
 * @throws CniError 5 when a directory cannot be read; a missing one is empty
 */
export function listRecords(stateDir: string, network?: string): RecordList {
  const { known, notes, damaged } = readFiles('', [stateDir], network);
  const changing = notes.filter(isTheirs).flatMap(note => readRecord(stateDir, note) ?? []);
  return { records: [...changing, ...known.flatMap(({ record }) => record ?? [])], damaged };
}

/**
 * Lists attachments of all networks, or of one, whichever runtime made them. An unusable file does not hide the others.
 * @param place.journals state directories
 * @throws CniError 5 when a directory cannot be read; a missing one is empty
 */
export function listKnown(
  { cacheDir, journals }: { readonly cacheDir: string; readonly journals: readonly string[] },
  network?: string,
): KnownList {
  const { known, damaged } = readFiles(cacheDir, journals, network);
  return { attachments: known, damaged };
}

interface KnownFiles {
  readonly known: readonly KnownAttachment[];
  readonly notes: readonly AttachmentRecord[];
  readonly damaged: readonly CniError[];
}

function readFiles(cacheDir: string, journals: readonly string[], network: string | undefined): KnownFiles {
  const filter = network === undefined ? {} : { network };
  const dirs = new Set([...(cacheDir ? [cacheDir] : []), ...journals.flatMap(cacheDirsOf)]);
  const lists = [...dirs].map(dir => ({ dir, ...listAttachments(dir, filter) }));
  const damaged = lists.flatMap(list => list.damaged);
  const noted = journals.map(stateDir => {
    const notes = noteFiles(stateDir, network).flatMap(file => {
      try {
        const note = readNote(file);
        if (note && noteFileOf(stateDir, note) !== file) throw misplaced(note, file);
        return note ?? [];
      } catch (error) {
        if (!(error instanceof CniError)) throw error;
        damaged.push(error);
        return [];
      }
    });
    return { stateDir, notes };
  });
  const entries = new Map(lists.map(({ dir, attachments }) => [dir, attachments]));
  const notes = noted.flatMap(one => one.notes);
  return { known: joinKnown(cacheDir, entries, noted), notes, damaged };
}

/**
 * What entries and notes say together, from what was read of them: those of other runtimes in the caller's own directory, then those of
 * each journal in turn.
 * @param entries by directory
 */
export function joinKnown(
  ownDir: string,
  entries: ReadonlyMap<string, readonly CachedAttachment[]>,
  journals: readonly { readonly stateDir: string; readonly notes: readonly AttachmentRecord[] }[],
): KnownAttachment[] {
  const taken = new Set<CachedAttachment>();
  const recorded = journals.flatMap(({ stateDir, notes }) => {
    const known = (record: AttachmentRecord, cached: CachedAttachment | undefined): KnownAttachment => {
      if (cached) taken.add(cached);
      return { known: toRemembered(record), record, stateDir, cached, cacheDir: record.cacheDir };
    };
    const keys = new Set<string>();
    const noted = notes
      .filter(note => !isTheirs(note))
      .flatMap(note => {
        const key = keyOf(note);
        const own = entries.get(note.cacheDir)?.find(one => keyOf(one) === key);
        const cached = own ?? entryOrUnusable(note.cacheDir, note);
        const record = standing(stateDir, note, cached);
        if (!record?.isNoted) return [];
        keys.add(key);
        return known(record, cached === 'unusable' ? undefined : cached);
      });
    const settled = [...entries].flatMap(([dir, list]) =>
      list.flatMap(entry => {
        const record = recordOf(stateDir, entry, dir);
        return record && !keys.has(keyOf(entry)) ? known(record, entry) : [];
      }),
    );
    return [...noted, ...settled];
  });
  const others = (entries.get(ownDir) ?? []).filter(one => !taken.has(one));
  const none = { record: undefined, stateDir: undefined, cacheDir: ownDir };
  return [...others.map(cached => ({ known: cached, cached, ...none })), ...recorded];
}

/** Another runtime made it. While a change of such a one is unfinished, it has a note, too. */
function isTheirs({ foreign, phase }: AttachmentRecord): boolean {
  return foreign === true && phase === 'attached';
}

/** Undefined without one, and for one whose content names an attachment that no file can be of. */
export function findCacheFile({
  cached,
  cacheDir,
}: Pick<KnownAttachment, 'cached' | 'cacheDir'>): string | undefined {
  try {
    return cached && cacheFileOf(cacheDir, cached);
  } catch {
    return undefined;
  }
}

/** Files of the notes of a network, or of all. @throws CniError 5 */
export function noteFiles(stateDir: string, network?: string): string[] {
  const root = notesDir(stateDir);
  const names = network === undefined ? listNames(root) : [directoryOf(network)];
  return names.flatMap(name => {
    const dir = join(root, name);
    return listNames(dir, hidden => sweepUnfinished(dir, hidden)).map(one => join(dir, one));
  });
}

/** What the directories of entries are that a journal has used. The usual one is known even if the state directory was lost. */
export function cacheDirsOf(stateDir: string): string[] {
  const dir = cachesDir(stateDir);
  const noted = namesIn(dir).flatMap(name => {
    try {
      return readlinkSync(join(dir, name)).slice(MARK.length);
    } catch {
      return [];
    }
  });
  const ours = usualStateDir();
  const isUsual = stateDir === ours || stateDir === runnerJournals(ours).delegates;
  return isUsual ? [...new Set([cniCacheDir(), ...noted])] : noted;
}

/** Before the path in a link: whatever walks through the state directory must not get to the entries. */
const MARK = 'at:';

/** An entry, or one that was taken aside to replace it; undefined also for one that cannot be used. */
export function tryEntry(cacheDir: string, id: AttachmentId): CachedAttachment | undefined {
  const entry = entryOrUnusable(cacheDir, id);
  return entry === 'unusable' ? undefined : entry;
}

function entryOrUnusable(cacheDir: string, id: AttachmentId): CachedAttachment | 'unusable' | undefined {
  try {
    return readAttachment(cacheDir, id) ?? readAside(cacheDir, id);
  } catch {
    return 'unusable';
  }
}

/** What a note says, or the entry if the note is over; undefined if it is over and the entry is not of this journal. */
function standing(
  stateDir: string,
  note: AttachmentRecord,
  entry: CachedAttachment | 'unusable' | undefined,
): AttachmentRecord | undefined {
  if (entry === 'unusable') return note;
  // A DEL had ended but for its note; only what failed, or never had an entry, may have left something.
  if (entry === undefined) return !note.added || note.attempts > 0 ? note : undefined;
  const isCommitted = note.change !== undefined && entry.made?.change === note.change.op;
  if (!isCommitted && isEntryOf(entry, note)) return note;
  return recordOf(stateDir, entry, note.cacheDir);
}

/** Whether an entry is of the same ADD as a record. An unfinished ADD has none: one that is there is the outcome, or a later ADD's. */
export function isEntryOf({ made, ...entry }: CachedAttachment, record: AttachmentRecord): boolean {
  if (!record.added) return false;
  if (!record.foreign) return made?.op === record.runner.op;
  return made?.op === undefined && renderAttachment(entry) === renderAttachment(toRemembered(record));
}

/**
 * Begins the note of an ADD. Only with the lock of the attachment. An unreadable note is replaced.
 * @throws CniError 5
 */
export function createNote(stateDir: string, intent: Intent): OpenNote {
  refuseRecord(stateDir, intent);
  const fd = putNote(stateDir, intent, []);
  return writerOf(noteFileOf(stateDir, intent), fd, true);
}

/** @throws CniError 5 if there is one, also if it cannot be read at all: then it may be a good one */
function refuseRecord(stateDir: string, id: AttachmentId): void {
  const file = noteFileOf(stateDir, id);
  try {
    if (readRecord(stateDir, id) === undefined) return;
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

/**
 * Writes a note with all its lines, replacing an existing one.
 * @throws CniError 5
 */
export function replaceNote(stateDir: string, intent: Intent, lines: readonly Line[]): void {
  closeSync(putNote(stateDir, intent, lines));
}

/**
 * Opens the note of an attachment to append lines; undefined if there is none.
 * @throws CniError 5
 */
export function reopenNote(stateDir: string, id: AttachmentId): OpenNote | undefined {
  const file = noteFileOf(stateDir, id);
  try {
    const flags = constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    return writerOf(file, openSync(file, flags), false);
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    throw fileFailure('open note', file, cause);
  }
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
    if (entry === 'unusable' || (entry && recordOf(stateDir, entry, dir))) removeAttachment(dir, id);
  }
  dropNote(stateDir, id);
}

/**
 * The note in a file, or undefined if there is none.
 * @throws CniError 6 when it is damaged or not a note, 5 when it cannot be read
 */
export function readNote(file: string): AttachmentRecord | undefined {
  let fd: number;
  try {
    // Checking first is cheaper than an error that is thrown and caught.
    if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return undefined;
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    if ((cause as NodeJS.ErrnoException).code === 'ELOOP') throw unfit(file, 'it is a symbolic link');
    throw fileFailure('read note', file, cause);
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw unfit(file, 'it is not a regular file');
    if (stat.size > MAX_BYTES) throw unfit(file, `its size of ${stat.size} bytes exceeds that of any note`);
    return parseNote(readFileSync(fd, 'utf8'), file);
  } catch (cause) {
    throw cause instanceof CniError ? cause : fileFailure('read note', file, cause);
  } finally {
    closeSync(fd);
  }
}

/** A result is at most 16 MiB; a note holds one for each segment. */
const MAX_BYTES = 256 * 1024 * 1024;

/** Says where the entries of a journal are. @throws the system error */
export function keepCacheDir(stateDir: string, cacheDir: string): void {
  const link = join(cachesDir(stateDir), digestOf(cacheDir));
  // Checking first is cheaper than an error that is thrown and caught.
  if (lstatSync(link, { throwIfNoEntry: false })) return;
  mkdirSync(dirname(link), { recursive: true, mode: 0o700 });
  try {
    symlinkSync(`${MARK}${cacheDir}`, link);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** The note under its name, open for further lines. */
function putNote(stateDir: string, intent: Intent, lines: readonly Line[]): number {
  const file = noteFileOf(stateDir, intent);
  try {
    keepCacheDir(stateDir, intent.cacheDir);
    return putOpenFile(file, [renderIntent(intent), ...lines.map(renderLine)].join(''));
  } catch (cause) {
    throw fileFailure('write note', file, cause);
  }
}

/**
 * Appends lines to the file.
 * @param whole whether its last line is known to be complete
 */
function writerOf(file: string, fd: number, whole: boolean): OpenNote {
  let start = whole || !isCutOff(fd) ? '' : '\n';
  return {
    append(line) {
      writeAll(fd, `${start}${renderLine(line)}`, file);
      start = '';
    },
    close: () => closeSync(fd),
  };
}

function misplaced({ network, containerId, ifname }: AttachmentId, file: string): CniError {
  return unfit(file, `it is for interface "${ifname}" of container "${containerId}" on network "${network}"`);
}

function unfit(file: string, problem: string): CniError {
  return new CniError(ErrorCode.decodingFailure, `Cannot read note "${file}": ${problem}`);
}
