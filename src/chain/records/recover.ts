// How is an ADD noted before it does anything, and undone: at once if it fails, by the next operation if its runner has died?
//
// attachments/README.md says what is noted when, and what becomes of it after a crash.

import { dirname } from 'node:path';
import {
  type Held,
  type HeldKnown,
  hold,
  type KnownAttachment,
  listLeft,
  tryHold,
} from '../../attachments/store.ts';
import { type AttachmentId, toId } from '../../cni/attachment.ts';
import { cacheDirOf } from '../../cni/directories.ts';
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult, type ResultOf } from '../../cni/result.ts';
import type { Conflist } from '../config/conflist.ts';
import { unwind, withDetails } from '../run/call-plugins.ts';
import { type Attachment, type ChainRuntime, hasItsInterface, holdCall } from '../run/runtime.ts';
import { visitAll } from '../run/visits.ts';
import { deleteHeld, withOwnNetns } from './delete-attachment.ts';
import { findCached } from './known-add.ts';

/** An ADD that is noted, and whose plugins may be called. It holds the attachment until that is released. */
interface PreparedAdd {
  readonly list: Conflist;
  readonly attachment: Attachment;
  readonly runtime: ChainRuntime;
  readonly held: Held;
  /** The file that records an earlier ADD whose attachment exists; undefined if there is none. */
  readonly earlier: string | undefined;
}

/**
 * Recovers what earlier commands left, deletes what remains of an earlier ADD of the attachment, and writes the intent. Waits
 * while another process works on the attachment.
 * @returns the recorded result instead, for a caller that lost the reply and asks again with the same request key
 * @throws CniError 5 when the record cannot be written, 11 while another process works on the attachment
 */
export async function prepare(
  id: AttachmentId,
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  executables: readonly string[],
): Promise<PreparedAdd | { readonly answer: ResultOf }> {
  // Recovery comes first: attachments that it deletes release their addresses.
  await recover({ network: list.name }, runtime);
  const held = await hold(id, holdCall(runtime, 'add'));
  try {
    const earlier = await settleEarlierAdd(id, held, runtime);
    const { request } = runtime;
    const isRepeated = earlier !== undefined && request !== undefined && held.record?.request === request;
    const again = isRepeated ? held.record?.result : undefined;
    if (again) {
      held.release();
      return { answer: convertResult(again, list.version, 'recorded result') as ResultOf };
    }
    const { netns, args = [], capabilityArgs = {} } = attachment;
    if (earlier !== undefined && held.past?.netns(netns) === 'other') throw attachedElsewhere(id, held);
    const { source } = list;
    held.beginAdd({ netns, args, capabilityArgs, source, executables }, earlier !== undefined);
    return { list, attachment, runtime, held, earlier };
  } catch (error) {
    held.release();
    throw error;
  }
}

/** In two namespaces it would have one address, and DEL would find but the second. */
function attachedElsewhere({ containerId, ifname, network }: AttachmentId, { record }: Held): CniError {
  return new CniError(
    ErrorCode.invalidNetns,
    `Cannot attach interface "${ifname}" of container "${containerId}" to network "${network}": it is attached in namespace "${record?.netns}"; run DEL first`,
    { details: `recorded in "${record?.file}"` },
  );
}

/**
 * Deletes what an earlier ADD of the attachment left if that was cut off, or if its namespace or its boot is gone.
 * @returns the file that records an earlier ADD whose attachment exists; undefined if there is none
 * @throws CniError of what cannot be deleted, 11 while an orphan process works on the attachment
 */
export async function settleEarlierAdd(
  id: AttachmentId,
  held: Held,
  runtime: ChainRuntime,
): Promise<string | undefined> {
  if (held.known) {
    const { record, past } = held.known;
    if (past.stands && past.netns() === 'same') return record.file;
    held.beginDel();
    await deleteHeld(held.known, runtime);
    held.become('add');
  } else await held.awaitOrphans();
  // If the cache cannot be read, do not begin: the same disk is to hold the new record.
  const cached = findCached(id, runtime, [ErrorCode.decodingFailure]);
  return cached === undefined || (await hasLostInterface(cached, runtime)) ? undefined : cached.file;
}

/**
 * A cached result outlives a DEL that was killed, or that another tool ran. Without its interface there is no attachment, and
 * this ADD must be undone if it fails.
 */
async function hasLostInterface(cached: KnownAttachment, runtime: ChainRuntime): Promise<boolean> {
  if (cached.netns === '') return false;
  // If that cannot be determined, it counts as attached.
  return !(await hasItsInterface(cached, runtime).catch(() => true));
}

/**
 * Undoes the plugins that began, in reverse order, and deletes the record; if the undo fails, the record stays and the undo is
 * retried later. Over an earlier ADD nothing is undone: deleting its attachment would cut a working container off its network.
 * @param lastBegun index of the last plugin that may have begun
 * @param result of the last plugin that succeeded
 * @returns the error to throw: the plugin's, with the failures of the undo in its details
 */
export async function rollback(
  { list, attachment, runtime, held, earlier }: PreparedAdd,
  error: unknown,
  lastBegun: number,
  result: JsonObject | undefined,
): Promise<unknown> {
  if (earlier !== undefined) {
    const why = `an earlier ADD is recorded in "${earlier}": nothing was undone; run DEL first`;
    return withDetails(error, why);
  }
  const own = withOwnNetns(attachment, held.record, runtime);
  const { final, failures } = await unwind(error, list, lastBegun, own, runtime, result);
  if (failures.length) held.fail(failures);
  else held.abandon();
  const { explainConflict } = await import('../config/plugin-version.ts');
  return explainConflict(final, list, runtime);
}

export interface Recovery extends AttachmentId {
  /** Why it had to be deleted. */
  readonly why: string;
  /** Why that failed; it is retried later. */
  readonly error?: CniError;
}

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
type DeleteHeld = (held: HeldKnown, runtime: ChainRuntime) => Promise<boolean>;

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
    const groupOf = ({ file }: (typeof left)[number]) => dirname(file);
    await visitAll(left, { groupOf, signal: runtime.signal }, async one => {
      if (isBrief && (done.length >= LIMIT || performance.now() > until)) return;
      try {
        const found = one.read();
        const recovery = found && (await recoverOne(found, remove, own, scope.all));
        if (recovery) done.push(recovery);
      } catch (error) {
        runtime.onWarning?.(toCniError(error));
      }
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
  { record, past }: Pick<HeldKnown, 'record' | 'past'>,
  how: DeleteHeld,
  runtime: ChainRuntime,
  now = false,
): Promise<Recovery | undefined> {
  if (past.kind === 'changing') {
    // The attachment stays, so there is nothing to report but a failure.
    const { settleChange } = await import('../change.ts');
    await settleChange(record, runtime);
    return undefined;
  }
  if (!now && !isDue(record)) return undefined;
  const { network, containerId, ifname } = record;
  const why = past.toDelete ?? '';
  const outcome = { ...toId(record), why };
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
function isDue({ attempts, lastAttempt, runners }: KnownAttachment): boolean {
  const tries = attempts + runners.length - (attempts > 0 ? 0 : 1);
  const last = [lastAttempt, runners.at(-1)?.time].flatMap(time =>
    time === undefined ? [] : Date.parse(time),
  );
  if (tries < 1 || last.length === 0) return true;
  const pause = Math.min(BACKOFF_MS.first * 2 ** (tries - 1), BACKOFF_MS.last);
  // After the clock was set back, an attempt must not wait for years.
  return !(Math.abs(Date.now() - Math.max(...last)) < pause);
}
