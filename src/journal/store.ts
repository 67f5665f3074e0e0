// How are records written to disk and read back?
//
// Nothing is synced. A record is about kernel state, which a power failure ends as well, and attachments of an earlier boot are
// taken down whether their record is complete or not.
import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type AttachmentId, sameAttachment } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { fileFailure } from '../files/failure.ts';
import { putOpenFile, removeFile } from '../files/put-file.ts';
import { isCutOff, isMissing, listNames, writeAll } from './files.ts';
import { parseRecord, renderIntent, renderLine } from './lines.ts';
import { setMark, settle } from './marks.ts';
import { directoryOf, recordFileOf, recordsDir, unfinishedFileOf } from './place.ts';
import type { AttachmentRecord, Intent, Line } from './record.ts';

/** A record that is open for appending lines. */
export interface OpenRecord {
  /** @throws CniError 5; then the line was not written at all */
  append(line: Line): void;
  close(): void;
}

/** What a state directory holds. */
export interface RecordList {
  /** Sorted by file. */
  readonly records: readonly AttachmentRecord[];
  /** Files that are unreadable or not records, with the reason. */
  readonly damaged: readonly CniError[];
}

/**
 * Begins a record, and marks it as unsettled. Only with the lock of the attachment. An unreadable record is replaced.
 * @throws CniError 5
 */
export function createRecord(stateDir: string, intent: Intent): OpenRecord {
  refuseRecord(stateDir, intent);
  // Before the record: no process would find that if we died in between.
  markRecord(stateDir, intent);
  const file = recordFileOf(stateDir, intent);
  try {
    return writerOf(file, place(stateDir, intent, renderIntent(intent)), true);
  } catch (error) {
    settle(stateDir, intent);
    throw error;
  }
}

/** @throws CniError 5 if there is one, also if it cannot be read at all: then it may be a good record */
function refuseRecord(stateDir: string, id: AttachmentId): void {
  const file = recordFileOf(stateDir, id);
  try {
    if (readRecord(stateDir, id) === undefined) return;
  } catch (error) {
    if (!(error instanceof CniError && error.code === ErrorCode.decodingFailure)) throw error;
    rmSync(file, { recursive: true, force: true });
    return;
  }
  throw new CniError(
    ErrorCode.ioFailure,
    `Cannot write record "${file}": a process without its lock has written one; call ADD again`,
  );
}

/**
 * Writes a record with all its lines, replacing the existing one.
 * @throws CniError 5
 */
export function replaceRecord(stateDir: string, intent: Intent, lines: readonly Line[]): void {
  closeSync(place(stateDir, intent, [renderIntent(intent), ...lines.map(renderLine)].join('')));
}

/**
 * Opens a record to append lines, and marks it as unsettled; undefined if there is none.
 * @throws CniError 5
 */
export function reopenRecord(stateDir: string, id: AttachmentId): OpenRecord | undefined {
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

/** Marks a record as unsettled. @throws CniError 5 */
export function markRecord(stateDir: string, id: AttachmentId): void {
  try {
    setMark(stateDir, id);
  } catch (cause) {
    throw fileFailure('mark record', recordFileOf(stateDir, id), cause);
  }
}

/**
 * The record of an attachment, or undefined if there is none.
 * @throws CniError 6 when it is damaged or not a record, 5 when it cannot be read
 */
export function readRecord(stateDir: string, id: AttachmentId): AttachmentRecord | undefined {
  const file = recordFileOf(stateDir, id);
  const record = readFile(file);
  if (record === undefined || sameAttachment(record, id)) return record;
  throw misplaced(record, file);
}

/**
 * The records of a network, or of all. An unusable one does not hide the others.
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

/** Removes a record and its mark. Missing ones are ignored. @throws CniError 5 */
export function dropRecord(stateDir: string, id: AttachmentId): void {
  removeFile(recordFileOf(stateDir, id), 'record');
  settle(stateDir, id);
}

/**
 * The record in a file, or undefined if there is none.
 * @throws CniError 6 when it is damaged or not a record, 5 when it cannot be read
 */
export function readFile(file: string): AttachmentRecord | undefined {
  return readText(file, text => parseRecord(text, file));
}

/** Whether the attachment exists and nothing of it is unfinished. */
export function isDone({ phase, change, before }: AttachmentRecord): boolean {
  return phase === 'attached' && change === undefined && before === undefined;
}

function readText<T>(file: string, parse: (text: string) => T): T | undefined {
  let fd: number;
  try {
    // Checking first is cheaper than an error that is thrown and caught.
    if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return undefined;
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    throw fileFailure('read record', file, cause);
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw unfit(file, 'it is not a regular file');
    if (stat.size > MAX_BYTES) throw unfit(file, `its size of ${stat.size} bytes exceeds that of any record`);
    return parse(readFileSync(fd, 'utf8'));
  } catch (cause) {
    throw cause instanceof CniError ? cause : fileFailure('read record', file, cause);
  } finally {
    closeSync(fd);
  }
}

/** A result is at most 16 MiB; a record holds one for each plugin that changed it. */
const MAX_BYTES = 256 * 1024 * 1024;

/** The file under its name, open for further lines. */
function place(stateDir: string, id: AttachmentId, text: string): number {
  const file = recordFileOf(stateDir, id);
  try {
    return putOpenFile(file, text, { unfinished: unfinishedFileOf(stateDir, id) });
  } catch (cause) {
    throw fileFailure('write record', file, cause);
  }
}

/**
 * Appends lines to the file.
 * @param whole whether its last line is known to be complete
 */
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

function misplaced({ network, containerId, ifname }: AttachmentId, file: string): CniError {
  return unfit(file, `it is for interface "${ifname}" of container "${containerId}" on network "${network}"`);
}

function unfit(file: string, problem: string): CniError {
  return new CniError(ErrorCode.decodingFailure, `Cannot read record "${file}": ${problem}`);
}
