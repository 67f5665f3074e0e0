// How does an ADD keep its note while it runs?
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { bootId } from '../../files/boot-id.ts';
import { fileExists } from '../../files/read-file.ts';
import { hostCookie } from '../../journal/elsewhere.ts';
import { cacheFileOf, isOfAnother, removeAttachment, writeAttachment } from '../../journal/entries.ts';
import type { Lock } from '../../journal/lock.ts';
import { identifyNetns, type NetnsIdentity } from '../../journal/netns-identity.ts';
import type { Intent, RecordedError } from '../../journal/record.ts';
import { createNote, dropNote, entryOf, keepCacheDir } from '../../journal/store.ts';
import type { Conflist } from '../config/conflist.ts';
import { type Attachment, type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { idOf, toCached } from './config-of-add.ts';

/** What is noted of a running ADD, which has the lock until one of the last four. Without a journal only the entry is written. */
export interface AddRecord {
  /** The namespace that the note names; undefined without a journal. */
  readonly namespace: NetnsIdentity | undefined;
  /** The plugins up to this one are about to be called, and may run before the runner has read all replies. @throws CniError 5 */
  segment(last: number, result?: JsonObject): void;
  /**
   * All plugins succeeded: writes the entry, by whose rename the ADD is committed. If it throws, it is not.
   * @param outcome the list's text, unless it is that of the ADD, and the result of the last plugin
   * @throws CniError 5
   */
  commit(outcome: { readonly source?: string; readonly result?: JsonObject | undefined }): void;
  /** Everything was undone: removes the note. */
  undone(): void;
  /** Undoing failed: the note is kept, and the undo is retried later. */
  undoFailed(errors: readonly unknown[]): void;
  /** An ADD over an existing attachment failed: the entry stays that of the earlier ADD. */
  leave(): void;
}

/**
 * Writes the note before anything is done.
 * @param lock of the attachment; undefined without a journal
 * @param standing the attachment of an earlier ADD exists: it is replaced only when this ADD has succeeded, and nothing is undone
 * @throws CniError 5: nothing may be done then, because no note would tell how to undo it; 7 if the entry is another attachment's
 */
export function beginRecord(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  { executables, standing, lock }: BegunAdd,
): AddRecord {
  const { stateDir } = runtime;
  refuseSharedName(list, attachment, runtime);
  if (stateDir === undefined || lock === undefined) return withoutJournal(list, attachment, runtime);
  const intent = { ...intentOf(list, attachment, runtime, executables), runner: lock.runner };
  return standing ? recordAtEnd(stateDir, intent, lock) : recordNow(stateDir, intent, lock);
}

interface BegunAdd {
  readonly executables: readonly string[];
  readonly standing: boolean;
  readonly lock: Lock | undefined;
}

/** What a note keeps of a failure. */
export function toRecorded(thrown: unknown): RecordedError {
  const { code, message, details, plugin } = toCniError(thrown);
  const place = plugin ? { link: plugin.type, index: plugin.index } : {};
  return { code, msg: message, ...(details === undefined ? {} : { details }), ...place };
}

/** All three parts of the name of an entry's file may contain "-": two attachments can have one name, and the entry is all that tells of one. */
function refuseSharedName(list: Conflist, attachment: Attachment, runtime: ChainRuntime): void {
  const id = idOf(list, attachment);
  const file = cacheFileOf(cacheDirOf(runtime), id);
  if (!isOfAnother(file, id)) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach interface "${id.ifname}" of container "${id.containerId}" to network "${id.network}": "${file}" is the entry of another attachment, whose names give the same file; choose another name for the network or the container`,
  );
}

function withoutJournal(list: Conflist, attachment: Attachment, runtime: ChainRuntime): AddRecord {
  return {
    namespace: undefined,
    segment() {},
    commit: ({ result }) => writeAttachment(cacheDirOf(runtime), { ...toCached(list, attachment), result }),
    undone() {},
    undoFailed() {},
    leave() {},
  };
}

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
  const open = createNote(stateDir, intent);
  const end = (): void => {
    open.close();
    lock.release();
  };
  try {
    // An entry outlives a DEL that was killed. From now on it would look like that of this ADD.
    if (fileExists(cacheFileOf(intent.cacheDir, intent))) removeAttachment(intent.cacheDir, intent);
  } catch (error) {
    open.close();
    unlessUnwritable(() => dropNote(stateDir, intent));
    throw error;
  }
  return {
    namespace: intent,
    segment: (last, result) =>
      open.append({ event: 'segment', last, ...(result === undefined ? {} : { result }) }),
    commit(outcome) {
      writeAttachment(intent.cacheDir, entryOf(stateDir, { ...intent, ...outcome }));
      // The entry has committed it: a note that stays is over.
      unlessUnwritable(() => dropNote(stateDir, intent));
      end();
    },
    undone() {
      unlessUnwritable(() => dropNote(stateDir, intent));
      end();
    },
    undoFailed(errors) {
      const { op } = intent.runner;
      const time = new Date().toISOString();
      unlessUnwritable(() =>
        open.append({ event: 'failed', op, time, attempts: 1, errors: errors.map(toRecorded) }),
      );
      end();
    },
    leave: end,
  };
}

function recordAtEnd(stateDir: string, intent: Intent, { release: leave }: Lock): AddRecord {
  return {
    namespace: intent,
    // Nothing of this ADD is undone: the attachment is the earlier ADD's.
    segment() {},
    commit(outcome) {
      keepCacheDir(stateDir, intent.cacheDir);
      writeAttachment(intent.cacheDir, entryOf(stateDir, { ...intent, ...outcome }));
      leave();
    },
    undone: leave,
    undoFailed: leave,
    leave,
  };
}

/**
 * A write error must not hide the failure that is being handled. The note then still says that the ADD did not end, and
 * recovery undoes the same plugins once more.
 */
function unlessUnwritable(write: () => void): void {
  try {
    write();
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
  }
}
