// How does an attachment get its record if several processes begin it at once?
import { closeSync, linkSync, renameSync, rmSync } from 'node:fs';
import { type AttachmentId, sameAttachment } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { fileFailure } from '../files/failure.ts';
import { putNewFile } from '../files/put-file.ts';
import { isMissing } from './files.ts';
import { renderIntent } from './lines.ts';
import { type Marked, markOf, takeMark } from './marks.ts';
import { recordFileOf, unfinishedFileOf } from './place.ts';
import type { Intent } from './record.ts';
import { dropRecord, markRecord, type OpenRecord, readFile, readRecord, unmark, writerOf } from './store.ts';

/**
 * Begins a record: written to a temporary file, then hard-linked to its name, and marked as unsettled. Of several processes
 * that begin one at the same time, exactly one succeeds. An unreadable record is replaced.
 * @returns undefined if the attachment already has a record
 * @throws CniError 5
 */
export function createRecord(stateDir: string, intent: Intent): OpenRecord | undefined {
  // Mark it before, because no process would find the record if we died in between; and again after, because another process may
  // have removed the mark while it had no record.
  markRecord(stateDir, intent);
  let fd: number | undefined;
  try {
    fd = placeFirst(stateDir, intent);
  } catch (error) {
    takeBack(markOf(stateDir, intent), stateDir);
    throw error;
  }
  if (fd === undefined) {
    takeBack(markOf(stateDir, intent), stateDir);
    return undefined;
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

/** The file under its name, open for further lines; undefined if a record exists. */
function placeFirst(stateDir: string, intent: Intent): number | undefined {
  const file = recordFileOf(stateDir, intent);
  const unfinished = unfinishedFileOf(stateDir, intent);
  for (;;) {
    try {
      return putNewFile(file, renderIntent(intent), unfinished);
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw fileFailure('write record', file, cause);
    }
    const found = find(stateDir, intent);
    if (found === 'good') return undefined;
    // One that has just been deleted is not damaged: at its path may already be the record of another process.
    if (found === 'damaged') setAside(stateDir, intent, unfinished);
  }
}

/** @throws CniError 5 when it cannot be read at all: then it may be a good record */
function find(stateDir: string, id: AttachmentId): 'good' | 'damaged' | 'gone' {
  try {
    return readRecord(stateDir, id) === undefined ? 'gone' : 'good';
  } catch (error) {
    if (error instanceof CniError && error.code === ErrorCode.decodingFailure) return 'damaged';
    throw error;
  }
}

/** Moves a damaged record away. If another process has just replaced it with a good one, that is moved back. */
function setAside(stateDir: string, id: AttachmentId, aside: string): void {
  const file = recordFileOf(stateDir, id);
  try {
    renameSync(file, aside);
  } catch (cause) {
    if (isMissing(cause)) return;
    throw fileFailure('replace damaged record', file, cause);
  }
  try {
    if (isRecordOf(aside, id)) linkSync(aside, file);
  } catch {
    // A third process was faster.
  }
  rmSync(aside, { recursive: true, force: true });
}

function isRecordOf(file: string, id: AttachmentId): boolean {
  const record = readFile(file);
  return record !== undefined && sameAttachment(record, id);
}

/** Removes our mark, unless an older record needs it. */
function takeBack(marked: Marked, stateDir: string): void {
  try {
    unmark(stateDir, marked);
  } catch {
    // The next process that reads that record reports its problem.
    takeMark(marked.mark);
  }
}
