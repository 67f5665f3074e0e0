// With which right does an operation change an attachment, and how is that noted?
import { basename, dirname, join } from 'node:path';
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isOfEarlierBoot } from './boot.ts';
import { removeAttachment, replaceAttachment, writeAttachment } from './entries.ts';
import type { CachedAttachment } from './entry.ts';
import { type Lock, type LockKey, type LockPlace, type Purpose, takeLock } from './lock.ts';
import type { AttachmentRecord, Intent, Line, PendingChange, RecordedError, Settings } from './record.ts';
import { holderOf, type Runner } from './runner.ts';
import {
  dropNote,
  entryOf,
  isEntryOf,
  noteFiles,
  readNote,
  readRecord,
  reopenNote,
  replaceNote,
  tryEntry,
} from './store.ts';

/** The exclusive right to change an attachment, until it is ended by one of `drop`, `fail` and `leave`. */
export interface Claim {
  readonly lock: Lock;
  /** The record; its runners include those that died with the lock. */
  readonly record: AttachmentRecord;
  /** Says that a DEL begins. @throws CniError 5: it was not written */
  begin(): void;
  /** All plugins succeeded: removes its entry, unless another ADD has written that, then the note. */
  drop(): void;
  /** Some plugins failed: notes them for the next attempt. */
  fail(errors: readonly RecordedError[]): void;
  /** Says that plugins are about to change it. @throws CniError 5: it was not written */
  change(change: PendingChange): void;
  /**
   * Commits the change that has begun: its entry gets the settings and the result, unless another ADD or DEL was faster.
   * @throws CniError 5: the entry is unchanged, and so is the note
   */
  changed(to: Settings & Pick<Intent, 'result'>): void;
  /** Plugins have undone the change. */
  unchanged(): void;
  /** Writes the entry again with another list; the claim stays. @throws CniError 5: the entry is unchanged */
  restate(source: string): void;
  /** Nothing was taken down: a note of what is unfinished stays. */
  leave(): void;
}

/**
 * Takes the lock of a recorded attachment, and begins a DEL if it is for that.
 * @param wanted checks the record once the lock is taken
 * @param deadlineMs milliseconds after which the operation ends a plugin
 * @returns undefined if there is no record, or it is not wanted; the other operation if that has the lock
 * @throws CniError 5 and 6
 */
export function claimRecord(
  place: LockPlace,
  id: AttachmentId,
  wanted: (record: AttachmentRecord) => boolean = () => true,
  purpose: Purpose = 'del',
  deadlineMs?: number,
): Claim | { readonly holder: Runner } | undefined {
  const { stateDir } = place;
  if (readRecord(stateDir, id) === undefined) return undefined;
  const lock = takeLock(place, id, purpose, deadlineMs);
  if ('holder' in lock) return lock;
  let claim: Claim | undefined;
  try {
    const record = readRecord(stateDir, id);
    const holder = record && holderOf(record);
    if (holder) return { holder };
    if (record === undefined || !wanted(record)) return undefined;
    const won = claimOf(stateDir, record, lock);
    if (purpose === 'del' || purpose === 'remove') won.begin();
    claim = won;
    return claim;
  } finally {
    if (claim === undefined) lock.release();
  }
}

/**
 * Removes the note in a file if it is over or has nothing to tell, unless a process works on the attachment.
 * @throws CniError 5 and 6
 */
export function clearNote(place: LockPlace, file: string): void {
  const lock = takeLock(place, keyOfNote(file), 'repair');
  if ('holder' in lock) return;
  try {
    const note = readNote(file);
    if (note && isOver(place, note)) dropNote(place.stateDir, note);
  } finally {
    lock.release();
  }
}

/** Removes the notes of a network that are over. Those that cannot be read stay. @throws CniError 5 */
export function sweepNotes(place: LockPlace, network: string): void {
  for (const file of noteFiles(place.stateDir, network)) {
    try {
      const note = readNote(file);
      if (note && isOver(place, note)) clearNote(place, file);
    } catch (error) {
      if (!(error instanceof CniError && error.code === ErrorCode.decodingFailure)) throw error;
    }
  }
}

/** The lock of an attachment has the name of its note. */
function keyOfNote(file: string): LockKey {
  return join(basename(dirname(file)), basename(file));
}

/** Whether the attachment is settled, or unknown. */
function isOver({ stateDir, env }: LockPlace, note: AttachmentRecord): boolean {
  const record = readRecord(stateDir, note);
  return !record?.isNoted || (record.phase === 'attached' && !record.change && !isOfEarlierBoot(record, env));
}

/** Number of failed attempts after which their lines are merged into one: a note must not grow for ever. */
const ATTEMPTS_KEPT = 32;

/** The claim of an attachment whose lock is held. */
export function claimOf(stateDir: string, found: AttachmentRecord, lock: Lock): Claim {
  const { runner } = lock;
  let record: AttachmentRecord = { ...found, runners: [...lock.dead, ...found.runners] };
  const { cacheDir } = record;
  const isOwnEntry = (entry: CachedAttachment | undefined) => entry !== undefined && isEntryOf(entry, record);
  /** Appends to the note; begins that of a settled attachment, over one that is over. */
  const note = (line: Line): void => {
    if (record.isNoted) append(stateDir, record, line);
    else replaceNote(stateDir, intentOf(record), [line]);
    record = { ...record, isNoted: true };
  };
  const settled = (more: Partial<Settings & Pick<Intent, 'result'>> = {}): void => {
    dropNote(stateDir, record);
    record = { ...record, ...more, change: undefined, isNoted: false };
  };
  return {
    lock,
    get record() {
      return record;
    },
    begin: () => note({ event: 'begin', runner }),
    drop() {
      try {
        if (!record.foreign && isOwnEntry(tryEntry(cacheDir, record))) removeAttachment(cacheDir, record);
        dropNote(stateDir, record);
        lock.forgetDead();
      } finally {
        lock.release();
      }
    },
    fail(errors) {
      const attempts = record.attempts + 1;
      const time = new Date().toISOString();
      const failed: Line = { event: 'failed', op: runner.op, time, attempts, errors };
      try {
        if (attempts % ATTEMPTS_KEPT > 0) note(failed);
        else replaceNote(stateDir, intentOf(record), [...reached(record), failed]);
      } finally {
        lock.release();
      }
    },
    change: change => note({ event: 'change', runner, ...change }),
    changed(to) {
      const entry = entryOf(stateDir, { ...record, ...to }, record.change?.op ?? runner.op);
      replaceAttachment(cacheDir, entry, isOwnEntry);
      settled(to);
    },
    unchanged: () => settled(),
    restate(source) {
      writeAttachment(cacheDir, entryOf(stateDir, { ...record, source }));
    },
    leave() {
      try {
        if (readRecord(stateDir, record)?.isNoted !== true) dropNote(stateDir, record);
      } catch (error) {
        // On a full disk, for example. The next process that finds the note reports a problem of it.
        if (!(error instanceof CniError)) throw error;
      } finally {
        lock.release();
      }
    },
  };
}

function append(stateDir: string, record: AttachmentRecord, line: Line): void {
  const open = reopenNote(stateDir, record);
  if (open === undefined) throw gone(record);
  try {
    open.append(line);
  } finally {
    open.close();
  }
}

function gone({ containerId, ifname, file }: AttachmentRecord): CniError {
  return new CniError(
    ErrorCode.ioFailure,
    `Cannot note a change of interface "${ifname}" of container "${containerId}": "${file}" was removed`,
  );
}

/** How far the plugins of an unfinished ADD had come. */
function reached({ segment }: AttachmentRecord): Line[] {
  return segment < 0 ? [] : [{ event: 'segment', last: segment }];
}

/** The first line of a note about a record. */
export function intentOf(record: AttachmentRecord): Intent {
  const { file: _, isNoted: __, phase: ___, added, segment, runners, change, ...rest } = record;
  const { attempts, lastAttempt, lastErrors, unreadable, ...intent } = rest;
  return { ...intent, ...(added ? { added } : {}) };
}
