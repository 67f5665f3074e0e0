// What is known of an attachment, and what does a note of it hold?
//
// The entry in libcni's cache says what a settled attachment is (entry.ts). A note exists only while something is unfinished: an ADD that has
// begun, a change, a deletion. Only the operation that has the attachment's lock (lock.ts) writes it, whole, and renames it into place.
import type { AttachmentId } from '../cni/attachment.ts';
import type { CniArgs } from '../cni/cni-args.ts';
import type { JsonObject } from '../cni/json.ts';
import type { CachedAttachment, MadeByUs } from './entry.ts';
import type { Runner } from './runner.ts';

/** What an ADD is about to do; or, if that had succeeded before, what a change or a deletion begins with. */
export interface Intent extends AttachmentId, Omit<MadeByUs, 'op' | 'time' | 'scope'> {
  /** Path of the network namespace. */
  readonly netns: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as text, as `Conflist.source` has it. */
  readonly source: string;
  /** Where libcni's entry of the attachment is. */
  readonly cacheDir: string;
  /** Of the ADD, as far as it came. */
  readonly result?: JsonObject | undefined;
  /** Another runtime made the attachment, and deletes it. */
  readonly foreign?: true;
  /** Of such a one: what the first plugin of its ADD has noted (generation.ts). */
  readonly generation?: string;
  /** The ADD that made it, or begins to. */
  readonly runner: Runner;
}

/** What an attachment was configured with, as far as it can be changed while the container runs. */
export type Settings = Pick<Intent, 'capabilityArgs' | 'source'>;

/** A change of a running attachment that has begun. */
export interface PendingChange {
  readonly to: Settings;
  /** Indexes of the plugins that are called, which may have changed their part. */
  readonly plugins: readonly number[];
}

/** A failure as the record keeps it. */
export interface RecordedError {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
  /** Type and index of the plugin that failed, if one did. */
  readonly link?: string;
  readonly index?: number;
}

/** What is known of an attachment that a runner of ours made, or that is being changed. */
export interface AttachmentRecord extends Intent {
  /** The note, if there is one; else the entry. */
  readonly file: string;
  /** Whether it was read from a note. */
  readonly isNoted: boolean;
  /**
   * `adding`: an ADD has begun and not ended. `attached`: it succeeded. `deleting`: a DEL has begun. `failed`: a DEL, or
   * the undo of a failed ADD, did not succeed and waits for its next attempt.
   */
  readonly phase: 'adding' | 'attached' | 'deleting' | 'failed';
  /** Whether the ADD succeeded, regardless of later operations. */
  readonly added: boolean;
  /** Index of the last plugin of an unfinished ADD that may have been called; -1 for none. */
  readonly segment: number;
  /** Operations that have begun and not reported their end, oldest first. */
  readonly runners: readonly Runner[];
  /** A change that has begun and neither succeeded nor been undone: the kernel may have either settings, or a part of each. */
  readonly change: (PendingChange & { readonly op: string }) | undefined;
  /** Number of failed DELs. */
  readonly attempts: number;
  readonly lastAttempt: string | undefined;
  readonly lastErrors: readonly RecordedError[];
}

/** An attachment as its ADD made it. */
export interface RememberedAdd extends CachedAttachment {
  /** The note or entry that it was read from; undefined if another runtime made it. */
  readonly file?: string;
}

/** An attachment, with all that files say about it. */
export interface KnownAttachment {
  /** What its ADD was called with, and its result. */
  readonly known: RememberedAdd;
  /** Undefined if another runtime made it. */
  readonly record: AttachmentRecord | undefined;
  /** The journal of the record. */
  readonly stateDir: string | undefined;
  /** libcni's entry, and the directory that has, or had, it. */
  readonly cached: CachedAttachment | undefined;
  readonly cacheDir: string;
}

/** An ADD that has begun, before its first plugin. */
export function begunAdd(intent: Intent, file: string): AttachmentRecord {
  const none = { segment: -1, change: undefined, attempts: 0, lastAttempt: undefined, lastErrors: [] };
  return { ...intent, ...none, phase: 'adding', added: false, runners: [intent.runner], file, isNoted: true };
}

/** A record in the format of entries. */
export function toRemembered(record: AttachmentRecord): RememberedAdd {
  const { network, containerId, ifname, netns, args, capabilityArgs, source, result, file } = record;
  return { network, containerId, ifname, netns, args, capabilityArgs, source, result, file };
}
