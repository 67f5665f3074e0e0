// How and when is an attachment deleted whose runner has died?
import { dirname, join } from 'node:path';
import { isOfEarlierBoot } from '../../attachments/boot.ts';
import { isElsewhere } from '../../attachments/elsewhere.ts';
import { findReason, pastOf } from '../../attachments/past.ts';
import { holderOf } from '../../attachments/runner.ts';
import { sweepSnapshots } from '../../attachments/snapshot.ts';
import {
  type AttachmentRecord,
  clearNote,
  type HeldKnown,
  isKnown,
  listRecords,
  markUnsettled,
  noteFiles,
  readNote,
  readRecord,
  sweepCache,
  tryHold,
} from '../../attachments/store.ts';
import { sweepDeadLocks, sweepLocks } from '../../attachments/sweep-locks.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import { bootId } from '../../files/boot-id.ts';
import { putFile, sweepUnfinished } from '../../files/put-file.ts';
import { fileExists, tryRead } from '../../files/read-file.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { visitAll } from '../run/visits.ts';
import { deleteHeld } from './delete-attachment.ts';
import { holdCall } from './hold.ts';
import { findLaterEntry, warnAgain } from './successor.ts';

/** The outcome for one unsettled attachment. */
export interface Recovery extends AttachmentId {
  /** Why it had to be deleted. */
  readonly why: string;
  /** Why that failed; it is retried later. */
  readonly error?: CniError;
}

/** How much one recovery does. */
export interface RecoveryScope {
  readonly network?: string;
  /** Recover everything now. Otherwise only a few, because a verb that recovers first must not be delayed for long. */
  readonly all?: boolean;
}

/**
 * Limits of a recovery before a verb: how many, and when to begin no more, which is also how long each plugin may take. What takes longer is
 * left to the daemon, to repair, or to its runtime's DEL.
 */
const LIMIT = 4;
const BRIEF_MS = 1_000;
/** Pause between attempts: starts at the first value and doubles each time up to the second. */
const BACKOFF_MS = { first: 1_000, last: 300_000 } as const;

/**
 * Deletes an unsettled attachment whose DEL has begun, using only its record.
 * @returns false if a later ADD had made it again
 * @throws CniError of what failed
 */
export type DeleteHeld = (held: HeldKnown, runtime: ChainRuntime) => Promise<boolean>;

/**
 * Deletes unsettled attachments: those with an operation that began and never ended because its runner died, those whose DEL failed
 * when their retry is due, and those of an earlier boot. Each uses the configuration of its own ADD. Never throws: the record
 * of an attachment that could not be deleted is kept for the next attempt.
 * @param how for journals whose records describe something other than the plugins of a list
 */
export async function recover(
  scope: RecoveryScope,
  runtime: ChainRuntime,
  how: DeleteHeld = deleteHeld,
): Promise<Recovery[]> {
  const { stateDir } = runtime;
  if (stateDir === undefined) return [];
  const done: Recovery[] = [];
  try {
    noteEarlierBoots(stateDir, runtime, scope.all === true);
    sweepSnapshots(runDir(runtime.env));
    sweepLocks(runtime.env);
    // A verb for one network has no time to look through what all networks share.
    if (scope.all || scope.network === undefined) {
      sweepUnfinished(stateDir);
      sweepDeadLocks({ stateDir, env: runtime.env });
      sweepCache(cacheDirOf(runtime));
    }
    const notes = noteFiles(stateDir, scope.network);
    if (notes.length === 0) return done;
    // A verb recovers on its way.
    const isBrief = scope.network !== undefined && !scope.all;
    const { onPlugin: _, onFinish: __, ...quiet } = runtime;
    const own = isBrief ? { ...quiet, deadlineMs: BRIEF_MS } : runtime;
    const until = isBrief ? performance.now() + BRIEF_MS : Number.POSITIVE_INFINITY;
    const limits = { groupOf: (file: string) => dirname(file), signal: runtime.signal };
    await visitAll(notes, limits, async file => {
      if (isBrief && (done.length >= LIMIT || performance.now() > until)) return;
      const recovery = await recoverOne(stateDir, file, how, own, scope.all).catch(error => {
        runtime.onWarning?.(toCniError(error));
      });
      if (recovery) done.push(recovery);
    });
  } catch (error) {
    runtime.onWarning?.(toCniError(error));
  }
  return done;
}

/**
 * Deletes an unsettled attachment.
 * @returns whether it did: there was a reason, no other process was at work on it, and no later ADD had made it again
 * @throws CniError of what failed
 */
export async function deleteUnsettled(
  id: AttachmentId,
  runtime: ChainRuntime,
  how: DeleteHeld = deleteHeld,
): Promise<boolean> {
  if (runtime.stateDir === undefined) return false;
  const held = tryHold(id, holdCall(runtime, 'del'));
  if ('holder' in held) return false;
  try {
    if (!isKnown(held) || findReason(held.record, runtime.env) === undefined) return false;
    held.beginDel();
    return await how(held, runtime);
  } finally {
    held.release();
  }
}

async function recoverOne(
  stateDir: string,
  file: string,
  how: DeleteHeld,
  runtime: ChainRuntime,
  now = false,
): Promise<Recovery | undefined> {
  const { env } = runtime;
  let note: AttachmentRecord | undefined;
  try {
    note = readNote(file);
  } catch (error) {
    runtime.onWarning?.(toCniError(error));
    return undefined;
  }
  // The note stays for a runner of that namespace.
  if (note === undefined || isElsewhere(note, env)) return undefined;
  const found = readRecord(stateDir, note);
  const why = found && findReason(found, env);
  if (found && pastOf(found, env).kind === 'changing' && !holderOf(found)) {
    await settleQuietly(found, runtime);
    return undefined;
  }
  if (!found?.isNoted || why === undefined) {
    const later = !found && findReason(note, env) !== undefined && findLaterEntry(note);
    if (later) warnAgain(note, later, runtime);
    clearNote({ stateDir, env }, note);
    return undefined;
  }
  if (!now && !isDue(found)) return undefined;
  const { network, containerId, ifname } = found;
  const outcome = { network, containerId, ifname, why };
  // The process that died may have left a temporary file.
  sweepCache(found.cacheDir);
  try {
    return (await deleteUnsettled(found, runtime, how)) ? outcome : undefined;
  } catch (thrown) {
    const error = toCniError(thrown);
    const text = `Cannot delete interface "${ifname}" of container "${containerId}" of network "${network}" (${why}): ${error.message}`;
    runtime.onWarning?.(new CniError(error.code, text, { cause: thrown }));
    return { ...outcome, error };
  }
}

/** The attachment stays, so there is nothing to report but a failure. */
async function settleQuietly(id: AttachmentId, runtime: ChainRuntime): Promise<void> {
  try {
    const { settleChange } = await import('../change/settle.ts');
    await settleChange(id, runtime);
  } catch (error) {
    runtime.onWarning?.(toCniError(error));
  }
}

/** Crashed attempts count too; otherwise every verb on this network would repeat the crash. */
function isDue({ attempts, lastAttempt, runners }: AttachmentRecord): boolean {
  const tries = attempts + runners.length - (attempts > 0 ? 0 : 1);
  const last = [lastAttempt, runners.at(-1)?.time].flatMap(time =>
    time === undefined ? [] : Date.parse(time),
  );
  if (tries < 1 || last.length === 0) return true;
  const pause = Math.min(BACKOFF_MS.first * 2 ** (tries - 1), BACKOFF_MS.last);
  // After the clock was set back, an attempt must not wait for years.
  return !(Math.abs(Date.now() - Math.max(...last)) < pause);
}

/** Once per boot: notes the attachments of an earlier boot. They are then recovered like any other of which something is unfinished. */
function noteEarlierBoots(stateDir: string, { env, onWarning }: ChainRuntime, onlyLooking: boolean): void {
  const boot = bootId(env);
  if (boot === '' || seen.get(stateDir) === boot) return;
  const former = join(stateDir, 'attachments');
  if (fileExists(former))
    onWarning?.(
      new CniError(
        ErrorCode.ioFailure,
        `Cannot use "${former}": it has the layout of an earlier build; what it has of settled attachments is not needed, and what is unsettled is deleted by "catena repair" of that build; then remove it`,
      ),
    );
  const stamp = join(stateDir, 'boot');
  if (tryRead(stamp) !== boot) {
    const { records, damaged } = listRecords(stateDir);
    for (const problem of damaged) onWarning?.(problem);
    for (const record of records)
      if (!record.isNoted && isOfEarlierBoot(record, env)) markUnsettled(stateDir, record);
    // A verb writes the stamp even if the journal is empty, so the second verb does not read the records again.
    const isThere = records.length || damaged.length || tryRead(stamp) !== undefined;
    if (isThere || !onlyLooking) writeStamp(stamp, boot);
  }
  seen.set(stateDir, boot);
}

/** State directories that this process has already searched, and in which boot. */
const seen = new Map<string, string>();

/** Happens only once per boot, so this also sweeps the temporary files of processes that died here. */
function writeStamp(stamp: string, boot: string): void {
  sweepUnfinished(dirname(stamp));
  putFile(stamp, boot, { what: 'boot note' });
}
