// How does an ADD keep its record while it runs?
import { CniError, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { bootId } from '../../files/boot-id.ts';
import { hostCookie } from '../../journal/elsewhere.ts';
import type { Lock } from '../../journal/lock.ts';
import { settle } from '../../journal/marks.ts';
import { identifyNetns, type NetnsIdentity } from '../../journal/netns-identity.ts';
import type { Intent, Line, RecordedError } from '../../journal/record.ts';
import { createRecord, dropRecord, replaceRecord } from '../../journal/store.ts';
import type { Conflist } from '../config/conflist.ts';
import { type Attachment, type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { idOf } from './config-of-add.ts';

/** The record of a running ADD, which has the lock until one of the last four. Without a journal its methods do nothing. */
export interface AddRecord {
  /** The namespace that the record names; undefined without a journal. */
  readonly namespace: NetnsIdentity | undefined;
  /** The plugins up to this one are about to be called, and may run before the runner has read all replies. @throws CniError 5 */
  segment(last: number): void;
  /** A plugin succeeded. @throws CniError 5 */
  succeeded(index: number, result: JsonObject): void;
  /** A plugin failed; the undo follows. */
  failed(index: number, error: unknown): void;
  /** All plugins succeeded. @throws CniError 5 */
  done(): void;
  /** Everything was undone: deletes the record. */
  undone(): void;
  /** Undoing failed: the record is kept, and the undo is retried later. */
  undoFailed(errors: readonly unknown[]): void;
  /** An ADD over an existing attachment failed: the record stays that of the earlier ADD. */
  leave(): void;
}

/**
 * Writes the record before anything is done.
 * @param lock of the attachment; undefined without a journal
 * @param standing the record on disk is that of an earlier ADD whose attachment exists: it is replaced only when this ADD
 *   has succeeded
 * @throws CniError 5: nothing may be done then, because no record would tell how to undo it
 */
export function beginRecord(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  { executables, standing, lock }: BegunAdd,
): AddRecord {
  const { stateDir } = runtime;
  if (stateDir === undefined || lock === undefined) return NONE;
  const intent = { ...intentOf(list, attachment, runtime, executables), runner: lock.runner };
  return standing ? recordAtEnd(stateDir, intent, lock) : recordNow(stateDir, intent, lock);
}

interface BegunAdd {
  readonly executables: readonly string[];
  readonly standing: boolean;
  readonly lock: Lock | undefined;
}

/** What the record keeps of a failure. */
export function toRecorded(thrown: unknown): RecordedError {
  const { code, message, details, plugin } = toCniError(thrown);
  const place = plugin ? { link: plugin.type, index: plugin.index } : {};
  return { code, msg: message, ...(details === undefined ? {} : { details }), ...place };
}

const NONE: AddRecord = {
  namespace: undefined,
  segment() {},
  succeeded() {},
  failed() {},
  done() {},
  undone() {},
  undoFailed() {},
  leave() {},
};

function intentOf(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  executables: readonly string[],
): Omit<Intent, 'runner'> {
  const { netns, args = [], capabilityArgs = {} } = attachment;
  const { env, owner = '', pluginDirs, request } = runtime;
  return {
    ...idOf(list, attachment),
    netns,
    ...identifyNetns(netns),
    ...hostCookie(),
    boot: bootId(env),
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

function recordNow(stateDir: string, intent: Intent, lock: Lock): AddRecord {
  const open = createRecord(stateDir, intent);
  const lines = linesOf(line => open.append(line));
  const end = (): void => {
    open.close();
    lock.release();
  };
  return {
    ...lines,
    namespace: intent,
    segment: last => open.append({ event: 'segment', verb: 'ADD', last }),
    done() {
      open.append({ event: 'done', op: intent.runner.op });
      settle(stateDir, intent);
      end();
    },
    undone() {
      unlessUnwritable(() => dropRecord(stateDir, intent));
      end();
    },
    undoFailed(errors) {
      const failed = { event: 'failed', verb: 'DEL', attempts: 1 } as const;
      const time = new Date().toISOString();
      unlessUnwritable(() =>
        open.append({ ...failed, op: intent.runner.op, time, errors: errors.map(toRecorded) }),
      );
      end();
    },
    leave: end,
  };
}

function recordAtEnd(stateDir: string, intent: Intent, { release: leave }: Lock): AddRecord {
  const written: Line[] = [];
  return {
    ...linesOf(line => written.push(line)),
    namespace: intent,
    // Nothing of this ADD is undone: the attachment is the earlier ADD's.
    segment() {},
    done() {
      replaceRecord(stateDir, intent, [...written, { event: 'done', op: intent.runner.op }]);
      leave();
    },
    undone: leave,
    undoFailed: leave,
    leave,
  };
}

function linesOf(write: (line: Line) => void): Pick<AddRecord, 'succeeded' | 'failed'> {
  let last: string | undefined;
  return {
    succeeded(index, result) {
      const text = JSON.stringify(result);
      const place = { event: 'link', verb: 'ADD', index } as const;
      write(text === last ? { ...place, same: true } : { ...place, result });
      last = text;
    },
    failed(index, error) {
      unlessUnwritable(() => write({ event: 'link', verb: 'ADD', index, error: toRecorded(error) }));
    },
  };
}

/**
 * A write error must not hide the failure that is being handled. The record then still says that the ADD did not end, and
 * recovery undoes the same plugins once more.
 */
function unlessUnwritable(write: () => void): void {
  try {
    write();
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
  }
}
