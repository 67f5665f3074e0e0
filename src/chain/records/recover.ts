// How and when is an attachment deleted whose runner has died?

import { dirname } from 'node:path';
import {
  type AttachmentRecord,
  type HeldKnown,
  type Left,
  listLeft,
  tryHold,
} from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, toCniError } from '../../cni/errors.ts';
import { type ChainRuntime, cacheDirOf, holdCall } from '../run/runtime.ts';
import { visitAll } from '../run/visits.ts';
import { deleteHeld, warnAgain } from './delete-attachment.ts';

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
 * @param remove for journals whose records describe something other than the plugins of a list
 */
export async function recover(
  scope: RecoveryScope,
  runtime: ChainRuntime,
  remove: DeleteHeld = deleteHeld,
): Promise<Recovery[]> {
  const { stateDir } = runtime;
  if (stateDir === undefined) return [];
  const done: Recovery[] = [];
  try {
    const place = { stateDir, env: runtime.env, cacheDir: cacheDirOf(runtime) };
    // A verb recovers on its way.
    const isBrief = scope.network !== undefined && !scope.all;
    const how = isBrief ? 'brief' : scope.all ? 'whole' : 'usual';
    const left = listLeft(place, how, scope.network, runtime.onWarning);
    if (left.length === 0) return done;
    const { onPlugin: _, onFinish: __, ...quiet } = runtime;
    const own = isBrief ? { ...quiet, deadlineMs: BRIEF_MS } : runtime;
    const until = isBrief ? performance.now() + BRIEF_MS : Number.POSITIVE_INFINITY;
    const limits = { groupOf: ({ file }: Left) => dirname(file), signal: runtime.signal };
    await visitAll(left, limits, async one => {
      if (isBrief && (done.length >= LIMIT || performance.now() > until)) return;
      const recovery = await recoverOne(one, remove, own, scope.all).catch(error => {
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
    if (held.known?.past.toDelete === undefined) return false;
    held.beginDel();
    return await how(held.known, runtime);
  } finally {
    held.release();
  }
}

async function recoverOne(
  left: Left,
  how: DeleteHeld,
  runtime: ChainRuntime,
  now = false,
): Promise<Recovery | undefined> {
  const found = left.read((note, later) => warnAgain(note, later, runtime));
  if (found === undefined) return undefined;
  const { record, past } = found;
  if (past.kind === 'changing') {
    // The attachment stays, so there is nothing to report but a failure.
    const { settleChange } = await import('../change/settle.ts');
    await settleChange(record, runtime);
    return undefined;
  }
  if (!now && !isDue(record)) return undefined;
  const { network, containerId, ifname } = record;
  const why = past.toDelete ?? '';
  const outcome = { network, containerId, ifname, why };
  try {
    return (await deleteUnsettled(record, runtime, how)) ? outcome : undefined;
  } catch (thrown) {
    const error = toCniError(thrown);
    const text = `Cannot delete interface "${ifname}" of container "${containerId}" of network "${network}" (${why}): ${error.message}`;
    runtime.onWarning?.(new CniError(error.code, text, { cause: thrown }));
    return { ...outcome, error };
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
