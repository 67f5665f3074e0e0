// With which right does an operation change an attachment, and how is that recorded?
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { type Lock, type LockPlace, type Purpose, takeLock } from './lock.ts';
import { type Marked, settle, takeMark } from './marks.ts';
import type { AttachmentRecord, Intent, Line, RecordedError, Settings } from './record.ts';
import { holderOf, type Runner } from './runner.ts';
import { dropRecord, isDone, readFile, readRecord, reopenRecord, replaceRecord } from './store.ts';

/** The exclusive right to change an attachment, until it is ended by one of `drop`, `fail` and `leave`. */
export interface Claim {
  readonly lock: Lock;
  /** The record as it was when the claim was won; its runners include those that died with the lock. */
  readonly record: AttachmentRecord;
  /** Says that a DEL begins. @throws CniError 5: it was not written */
  begin(): void;
  /** All plugins succeeded: deletes the record. */
  drop(): void;
  /** Some plugins failed: records them for the next attempt. */
  fail(errors: readonly RecordedError[]): void;
  /** Adds a line. @throws CniError 5: it was not written */
  note(line: Line): void;
  /** Writes the record again with another list and results; the claim stays. @throws CniError 5: the record is unchanged */
  restate(source: string, results: readonly JsonObject[]): void;
  /** Nothing was taken down: the record's content stays. */
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
 * Removes the mark of a record that is settled or gone, unless a process works on it: an ADD sets the mark before it writes its record.
 * @throws CniError 5 and 6
 */
export function unmark(place: LockPlace, { file, mark, key }: Marked): void {
  const lock = takeLock(place, key, 'repair');
  if ('holder' in lock) return;
  try {
    const record = readFile(file);
    if (record?.foreign && isDone(record)) dropRecord(place.stateDir, record);
    else if (!record || isDone(record)) takeMark(mark);
  } finally {
    lock.release();
  }
}

/** Number of failed attempts, or of changes, after which their lines are merged into one: a record must not grow for ever. */
const ATTEMPTS_KEPT = 32;

/** The claim of a recorded attachment whose lock is held. */
export function claimOf(stateDir: string, found: AttachmentRecord, lock: Lock): Claim {
  const { runner } = lock;
  const record = { ...found, runners: [...lock.dead, ...found.runners] };
  return {
    lock,
    record,
    begin() {
      append(stateDir, record, { event: 'begin', verb: 'DEL', runner });
    },
    drop() {
      try {
        dropRecord(stateDir, record);
        lock.forgetDead();
      } finally {
        lock.release();
      }
    },
    fail(errors) {
      const attempts = record.attempts + 1;
      const time = new Date().toISOString();
      const failed: Line = { event: 'failed', verb: 'DEL', op: runner.op, time, attempts, errors };
      try {
        if (attempts % ATTEMPTS_KEPT === 0) rewrite(stateDir, record, failed);
        else append(stateDir, record, failed);
      } finally {
        lock.release();
      }
    },
    note(line) {
      append(stateDir, record, line.event === 'change' ? { ...line, runner } : line);
    },
    restate(source, results) {
      const links = results.map((result, index): Line => ({ event: 'link', verb: 'ADD', index, result }));
      const done: Line = { event: 'done', op: record.runner.op };
      const { capabilityArgs } = record;
      replaceRecord(stateDir, intentOf(record, { capabilityArgs, source }), [...links, done]);
    },
    leave() {
      try {
        const now = readRecord(stateDir, record);
        if (now && isLong(now)) rewrite(stateDir, now);
        if (now?.foreign && isDone(now)) dropRecord(stateDir, record);
        else if (!now || isDone(now)) settle(stateDir, record);
      } catch (error) {
        // On a full disk, for example. The next process that finds the mark reports a problem of the record.
        if (!(error instanceof CniError)) throw error;
      } finally {
        lock.release();
      }
    },
  };
}

function append(stateDir: string, record: AttachmentRecord, line: Line): void {
  const open = reopenRecord(stateDir, record);
  if (open === undefined) throw gone(record);
  try {
    open.append(line);
  } finally {
    open.close();
  }
}

/** Whether lines of changes are to be merged, and every one of them is complete. */
function isLong({ phase, changes, change, before }: AttachmentRecord): boolean {
  return phase === 'attached' && changes >= ATTEMPTS_KEPT && !change && !before;
}

function gone({ containerId, ifname, file }: AttachmentRecord): CniError {
  return new CniError(
    ErrorCode.ioFailure,
    `Cannot record a change of interface "${ifname}" of container "${containerId}": "${file}" was removed`,
  );
}

/** Allowed only with the claim. */
function rewrite(stateDir: string, record: AttachmentRecord, last?: Line): void {
  const { capabilityArgs, source, runner } = record;
  const { outcomes, segment, added, change, before, changes, result } = record;
  const start = before ?? { capabilityArgs, source, result };
  const intent = intentOf(record, start);
  const links = outcomes.map(({ index, result, error }): Line => {
    const place = { event: 'link', verb: 'ADD', index } as const;
    return error ? { ...place, error } : { ...place, result: result ?? {} };
  });
  const ahead: Line[] = segment < 0 ? [] : [{ event: 'segment', verb: 'ADD', last: segment }];
  const done: Line[] = added ? [{ event: 'done', op: runner.op }] : [];
  const changed: Line[] = [
    ...(changes && start.result ? [{ event: 'changed', result: start.result } as const] : []),
    ...(before ? [{ event: 'change', to: { capabilityArgs, source }, plugins: [] } as const] : []),
    ...(before && result ? [{ event: 'changed', result } as const] : []),
    ...(change ? [{ event: 'change', ...change } as const] : []),
  ];
  replaceRecord(stateDir, intent, [...ahead, ...links, ...done, ...changed, ...(last ? [last] : [])]);
}

/** The first line of a record with these settings. */
function intentOf(record: AttachmentRecord, { capabilityArgs, source }: Settings): Intent {
  const { network, containerId, ifname, netns, boot, owner, args } = record;
  const { netnsIdentity, netnsCookie, hostCookie } = record;
  const { pluginDirs, executables, cacheDir, request, foreign, generation, runner } = record;
  const id = { network, containerId, ifname };
  const inputs = { netns, netnsIdentity, boot, owner, args, capabilityArgs, source };
  const more = {
    ...(netnsCookie === undefined ? {} : { netnsCookie }),
    ...(hostCookie === undefined ? {} : { hostCookie }),
    ...(request === undefined ? {} : { request }),
    ...(foreign === undefined ? {} : { foreign }),
    ...(generation === undefined ? {} : { generation }),
  };
  return { ...id, ...inputs, ...more, pluginDirs, executables, cacheDir, runner };
}
