// How are the records of an attachment prepared before its ADD, committed after it, and rolled back if it fails?
//
// Everything that the next command needs to know about an ADD is written before the ADD does it: `prepare` writes the intent,
// the record's methods follow the plugins, and one of `commit` and `rollback` ends it. If the process dies in between, recovery
// finds the intent and undoes what it names.

import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult, type ResultOf } from '../../cni/result.ts';
import { removeAttachment } from '../../journal/entries.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { Conflist } from '../config/conflist.ts';
import { explainConflict } from '../config/plugin-version.ts';
import { withDetails } from '../run/plugin-errors.ts';
import { type Attachment, type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { unwind } from '../run/undo.ts';
import { type AddRecord, beginRecord } from './add-record.ts';
import { idOf } from './config-of-add.ts';
import { settleEarlierAdd } from './earlier-add.ts';
import { type Held, hold } from './holder-wait.ts';
import { recover } from './recover.ts';

/** An ADD whose record is written and whose plugins may be called. */
export interface PreparedAdd {
  readonly list: Conflist;
  readonly attachment: Attachment;
  readonly runtime: ChainRuntime;
  readonly record: AddRecord;
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
  const held = await hold(id, runtime, 'add');
  let record: AddRecord | undefined;
  try {
    const earlier = await settleEarlierAdd(id, held, runtime);
    const again = earlier === undefined ? undefined : findAnswer(held?.record, runtime);
    if (again) return { answer: convertResult(again, list.version, 'recorded result') as ResultOf };
    const begun = { executables, standing: earlier !== undefined, lock: held?.lock };
    record = beginRecord(list, attachment, runtime, begun);
    return { list, attachment, runtime, record, earlier };
  } finally {
    if (record === undefined) held?.lock.release();
  }
}

/**
 * Writes the attachment's entry, which settles it. If it throws, the ADD is rolled back.
 * @throws CniError 5 when a record cannot be written, 11 when the path of the namespace leads to another one
 */
export function commit({ attachment, record }: PreparedAdd, result: JsonObject | undefined): void {
  refuseReplacedNetns(attachment, record);
  record.commit({ result });
}

/**
 * A container may have ended and its name been given to a new namespace while plugins ran. They opened the path after the record
 * was written, so the record would name a namespace that the interface is not in, and DEL would not look for it where it is.
 */
function refuseReplacedNetns({ netns, containerId }: Attachment, { namespace }: AddRecord): void {
  if (namespace === undefined || compareNetns(netns, namespace) !== 'other') return;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot add container "${containerId}": "${netns}" was replaced by another namespace while plugins ran; call ADD again`,
  );
}

/**
 * Undoes the plugins that began, in reverse order, and deletes the record; if the undo fails, the record stays and the undo is
 * retried later. Over an earlier ADD nothing is undone: deleting its attachment would cut a working container off its network.
 * @returns the error to throw: the plugin's, with the failures of the undo in its details
 */
export async function rollback(
  { list, attachment, runtime, record, earlier }: PreparedAdd,
  { error, lastBegun, result }: FailedAdd,
): Promise<unknown> {
  if (earlier !== undefined) {
    record.leave();
    return withDetails(
      error,
      `an earlier ADD is recorded in "${earlier}": nothing was undone; run DEL first`,
    );
  }
  const { final, failures } = await unwind(error, list, lastBegun, attachment, runtime, result);
  if (failures.length) record.undoFailed(failures);
  else {
    try {
      removeAttachment(cacheDirOf(runtime), idOf(list, attachment));
    } catch (error) {
      record.undoFailed([error]);
      throw error;
    }
    record.undone();
  }
  return explainConflict(final, list, runtime);
}

/** The result of an earlier ADD with the same request key. */
function findAnswer(record: Held['record'], { request }: ChainRuntime): JsonObject | undefined {
  if (request === undefined) return undefined;
  return record?.request === request ? record.result : undefined;
}
