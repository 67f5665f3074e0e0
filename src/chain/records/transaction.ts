// How are the records of an attachment prepared before its ADD, and rolled back if it fails?
//
// Everything that the next command needs to know about an ADD is written before the ADD does it: `prepare` writes the intent,
// the record's methods follow the plugins, and one of `commit` and `rollback` ends it. If the process dies in between, recovery
// finds the intent and undoes what it names.
import {
  type CachedAttachment,
  cacheFileOf,
  type Held,
  hold,
  type WantedAdd,
} from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult, type ResultOf } from '../../cni/result.ts';
import type { Conflist } from '../config/conflist.ts';
import { explainConflict } from '../config/plugin-version.ts';
import { unwind } from '../run/call-plugins.ts';
import { withDetails } from '../run/plugin-outcome.ts';
import { type Attachment, type ChainRuntime, cacheDirOf, holdCall } from '../run/runtime.ts';
import { deleteHeld } from './delete-attachment.ts';
import { hasItsInterface } from './held-attachment.ts';
import { findCached, idOf } from './known-add.ts';
import { recover } from './recover.ts';

/** An ADD that is noted, and whose plugins may be called. It holds the attachment until that is released. */
export interface PreparedAdd {
  readonly list: Conflist;
  readonly attachment: Attachment;
  readonly runtime: ChainRuntime;
  readonly held: Held;
  /** The file that records an earlier ADD whose attachment exists; undefined if there is none. */
  readonly earlier: string | undefined;
}

/** How far the plugins of an ADD came before one failed. */
export interface FailedAdd {
  readonly error: unknown;
  /** Index of the last plugin that may have begun. */
  readonly lastBegun: number;
  /** The result of the last plugin that succeeded. */
  readonly result: JsonObject | undefined;
}

/**
 * Recovers what earlier commands left, deletes what remains of an earlier ADD of the attachment, and writes the intent. Waits
 * while another process works on the attachment.
 * @returns the recorded result instead, for a caller that lost the reply and asks again with the same request key
 * @throws CniError 5 when the record cannot be written, 11 while another process works on the attachment
 */
export async function prepare(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  executables: readonly string[],
): Promise<PreparedAdd | { readonly answer: ResultOf }> {
  const id = idOf(list, attachment);
  // Recovery comes first: attachments that it deletes release their addresses.
  await recover({ network: list.name }, runtime);
  const held = await hold(id, holdCall(runtime, 'add'));
  try {
    const earlier = await settleEarlierAdd(id, held, runtime);
    const again = earlier === undefined ? undefined : findAnswer(held.record, runtime);
    if (again) {
      held.release();
      return { answer: convertResult(again, list.version, 'recorded result') as ResultOf };
    }
    held.beginAdd(intentOf(list, attachment, runtime, executables), earlier !== undefined);
    return { list, attachment, runtime, held, earlier };
  } catch (error) {
    held.release();
    throw error;
  }
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
  if (cached === undefined || (await hasLostInterface(cached, runtime))) return undefined;
  return cacheFileOf(cacheDirOf(runtime), id);
}

/**
 * A cached result outlives a DEL that was killed, or that another tool ran. Without its interface there is no attachment, and
 * this ADD must be undone if it fails.
 */
async function hasLostInterface(cached: CachedAttachment, runtime: ChainRuntime): Promise<boolean> {
  if (cached.netns === '') return false;
  try {
    return !(await hasItsInterface(cached, runtime));
  } catch {
    // If that cannot be determined, it counts as attached.
    return false;
  }
}

/** What is noted of an ADD before anything is done. */
export function intentOf(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  executables: readonly string[],
): WantedAdd {
  const { netns, args = [], capabilityArgs = {} } = attachment;
  const { owner = '', pluginDirs, request } = runtime;
  return {
    ...idOf(list, attachment),
    netns,
    owner,
    args,
    capabilityArgs,
    source: list.source,
    pluginDirs,
    executables,
    ...(request === undefined ? {} : { request }),
    cacheDir: cacheDirOf(runtime),
  };
}

/**
 * Undoes the plugins that began, in reverse order, and deletes the record; if the undo fails, the record stays and the undo is
 * retried later. Over an earlier ADD nothing is undone: deleting its attachment would cut a working container off its network.
 * @returns the error to throw: the plugin's, with the failures of the undo in its details
 */
export async function rollback(
  { list, attachment, runtime, held, earlier }: PreparedAdd,
  { error, lastBegun, result }: FailedAdd,
): Promise<unknown> {
  if (earlier !== undefined) {
    return withDetails(
      error,
      `an earlier ADD is recorded in "${earlier}": nothing was undone; run DEL first`,
    );
  }
  const { final, failures } = await unwind(error, list, lastBegun, attachment, runtime, result);
  if (failures.length) held.fail(failures);
  else held.abandon();
  return explainConflict(final, list, runtime);
}

/** The result of an earlier ADD with the same request key. */
function findAnswer(record: Held['record'], { request }: ChainRuntime): JsonObject | undefined {
  if (request === undefined) return undefined;
  return record?.request === request ? record.result : undefined;
}
