// How do records get onto disk, and back?
//
// Nothing is synced: a record is about kernel state, which a loss of power ends as well, and what an earlier boot left
// is taken down whether its record is whole or not.
import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Attachment } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { fileFailure } from '../files/failure.ts';
import { putOpenFile } from '../files/put-file.ts';
import { removeFile } from '../files/remove-file.ts';
import { isCutOff, isMissing, listNames, writeAll } from './files.ts';
import { parseRecord, parseSplit, renderIntent, renderLine, type SplitRecord } from './lines.ts';
import { type Marked, markOf, setMark, settle, takeMark } from './marks.ts';
import { directoryOf, recordFileOf, recordsDir, unfinishedFileOf } from './place.ts';
import type { AttachmentRecord, Intent, Line } from './record.ts';

/** A record that lines are added to. */
export interface OpenRecord {
  /** @throws CniError 5; nothing is half written then */
  append(line: Line): void;
  close(): void;
}

/** What a state directory holds. */
export interface RecordList {
  /** Sorted by file. */
  readonly records: readonly AttachmentRecord[];
  /** Files that are no records, or that nobody can read, with the reason. */
  readonly damaged: readonly CniError[];
}

/**
 * Begins a record: written beside its file, then renamed, and marked as not settled. An older one goes.
 * @throws CniError 5
 */
export function createRecord(stateDir: string, intent: Intent): OpenRecord {
  // Before the record, which nobody would find whose writer died in between; and after it, since whoever comes in between
  // takes a mark without a record away.
  markRecord(stateDir, intent);
  let fd: number;
  try {
    fd = place(stateDir, intent, renderIntent(intent));
  } catch (error) {
    takeBack(markOf(stateDir, intent), stateDir);
    throw error;
  }
  try {
    markRecord(stateDir, intent);
  } catch (error) {
    closeSync(fd);
    dropRecord(stateDir, intent);
    throw error;
  }
  return writerOf(recordFileOf(stateDir, intent), fd, true);
}

/**
 * Writes a record with all its lines in the place of what is there.
 * @throws CniError 5
 */
export function replaceRecord(stateDir: string, intent: Intent, lines: readonly Line[]): void {
  closeSync(place(stateDir, intent, [renderIntent(intent), ...lines.map(renderLine)].join('')));
}

/**
 * Opens a record to add lines, and marks it as not settled; undefined when there is none.
 * @throws CniError 5
 */
export function reopenRecord(stateDir: string, id: Attachment): OpenRecord | undefined {
  const file = recordFileOf(stateDir, id);
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    throw fileFailure('open record', file, cause);
  }
  try {
    markRecord(stateDir, id);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return writerOf(file, fd, false);
}

/** Marks a record as not settled. @throws CniError 5 */
export function markRecord(stateDir: string, id: Attachment): void {
  try {
    setMark(stateDir, id);
  } catch (cause) {
    throw fileFailure('mark record', recordFileOf(stateDir, id), cause);
  }
}

/**
 * The record of an attachment, or undefined when there is none.
 * @throws CniError 6 when it is damaged or none of ours, 5 when it cannot be read
 */
export function readRecord(stateDir: string, id: Attachment): AttachmentRecord | undefined {
  const file = recordFileOf(stateDir, id);
  const record = readFile(file);
  if (record === undefined || isSame(record, id)) return record;
  throw misplaced(record, file);
}

/**
 * The same, with what it would be without the lines of one operation: both of one moment.
 * @throws CniError as {@link readRecord}
 */
export function readSplit(stateDir: string, id: Attachment, op: string): SplitRecord | undefined {
  const file = recordFileOf(stateDir, id);
  const split = readText(file, text => parseSplit(text, file, op));
  if (split === undefined || isSame(split.record, id)) return split;
  throw misplaced(split.record, file);
}

/**
 * The records of a network, or of all. One that cannot be used hides no other.
 * @throws CniError 5 when a directory cannot be read; a missing one is empty
 */
export function listRecords(stateDir: string, network?: string): RecordList {
  const root = recordsDir(stateDir);
  const names = network === undefined ? listNames(root) : [directoryOf(network)];
  const records: AttachmentRecord[] = [];
  const damaged: CniError[] = [];
  for (const file of names.flatMap(name => listNames(join(root, name)).map(one => join(root, name, one)))) {
    try {
      const record = readFile(file);
      if (record === undefined) continue;
      if (recordFileOf(stateDir, record) !== file) throw misplaced(record, file);
      records.push(record);
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
      damaged.push(error);
    }
  }
  return { records, damaged };
}

/** Removes a record and its mark; what is not there is fine. @throws CniError 5 */
export function dropRecord(stateDir: string, id: Attachment): void {
  removeFile(recordFileOf(stateDir, id), 'record');
  settle(stateDir, id);
}

/**
 * Takes the mark of a record away that needs no work, or is not there any more. Whoever begins to work on it this very
 * moment keeps it: he writes that down first and sets the mark then, or finds it as he left it.
 * @throws CniError 5 and 6
 */
export function unmark(stateDir: string, { file, mark }: Marked): void {
  const isSettled = (record: AttachmentRecord | undefined) => !record || record.phase === 'attached';
  if (!isSettled(readFile(file))) return;
  takeMark(mark);
  const again = readFile(file);
  if (again && !isSettled(again)) setMark(stateDir, again);
}

/**
 * The record in a file, or undefined when there is none.
 * @throws CniError 6 when it is damaged or none of ours, 5 when it cannot be read
 */
export function readFile(file: string): AttachmentRecord | undefined {
  return readText(file, text => parseRecord(text, file));
}

function readText<T>(file: string, parse: (text: string) => T): T | undefined {
  let fd: number;
  try {
    // An error that is thrown and caught costs more than to look first.
    if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return undefined;
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    throw fileFailure('read record', file, cause);
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw unfit(file, 'it is not a regular file');
    if (stat.size > MAX_BYTES) throw unfit(file, `it has ${stat.size} bytes, more than any record`);
    return parse(readFileSync(fd, 'utf8'));
  } catch (cause) {
    throw cause instanceof CniError ? cause : fileFailure('read record', file, cause);
  } finally {
    closeSync(fd);
  }
}

/** Takes a mark away that an older record may need. */
function takeBack(marked: Marked, stateDir: string): void {
  try {
    unmark(stateDir, marked);
  } catch {
    // Whoever asks for that record is told what is wrong with it.
    takeMark(marked.mark);
  }
}

/** A result is at most 16 MiB; a record holds one for each link that changed it. */
const MAX_BYTES = 256 * 1024 * 1024;

/** The file under its name, open for further lines. */
function place(stateDir: string, id: Attachment, text: string): number {
  const file = recordFileOf(stateDir, id);
  try {
    return putOpenFile(file, text, { unfinished: unfinishedFileOf(stateDir, id) });
  } catch (cause) {
    throw fileFailure('write record', file, cause);
  }
}

/** @param whole whether the last line is known to be so */
function writerOf(file: string, fd: number, whole: boolean): OpenRecord {
  let start = whole || !isCutOff(fd) ? '' : '\n';
  return {
    append(line) {
      writeAll(fd, `${start}${renderLine(line)}`, file);
      start = '';
    },
    close: () => closeSync(fd),
  };
}

function isSame(a: Attachment, b: Attachment): boolean {
  return a.network === b.network && a.containerId === b.containerId && a.ifname === b.ifname;
}

function misplaced({ network, containerId, ifname }: Attachment, file: string): CniError {
  return unfit(file, `it is of interface "${ifname}" of container "${containerId}" on network "${network}"`);
}

function unfit(file: string, problem: string): CniError {
  return new CniError(ErrorCode.decodingFailure, `Cannot read record "${file}": ${problem}`);
}
