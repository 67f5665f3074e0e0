// What does the record of an attachment hold?
//
// The first line is the intent: what an ADD is about to do. One line follows for the outcome of each plugin, then `done`. A DEL
// adds `begin`, and `failed` if a plugin failed; if all succeeded, the file is removed. Only the operation that has the attachment's lock
// (lock.ts) writes. Lines are appended, each by one write, so a line that is cut off means that its writer died there.
import type { AttachmentId } from '../cni/attachment.ts';
import type { CniArgs } from '../cni/cni-args.ts';
import type { JsonObject } from '../cni/json.ts';
import type { NetnsIdentity } from './netns-identity.ts';
import type { Runner } from './runner.ts';

/** What an ADD is about to do. */
export interface Intent extends AttachmentId, NetnsIdentity {
  /** Path of the network namespace. */
  readonly netns: string;
  /**
   * The kernel's cookie of the network namespace that its runner worked in. Absent if the kernel did not report it, and if another
   * runtime made the attachment.
   */
  readonly hostCookie?: string;
  /** The boot of the machine in which it was written. */
  readonly boot: string;
  /** The name of the program that runs the chain; may be empty. */
  readonly owner: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as text, as `Conflist.source` has it. */
  readonly source: string;
  /** Directories in which plugins were looked up, and the executable found for each. */
  readonly pluginDirs: readonly string[];
  readonly executables: readonly string[];
  /** The caller's request key of the ADD: a second ADD with the same key returns the first one's result. */
  readonly request?: string;
  /** Where libcni's cached result of the attachment is. */
  readonly cacheDir: string;
  /** Another runtime made the attachment, and deletes it: the record exists only while a change of it is unfinished. */
  readonly foreign?: true;
  /** Of such a one: what the first plugin of its ADD has noted (generation.ts). */
  readonly generation?: string;
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

/** The outcome of a plugin on ADD. */
export interface PluginOutcomeLine {
  readonly index: number;
  /** Undefined when it failed. */
  readonly result: JsonObject | undefined;
  readonly error: RecordedError | undefined;
}

/** Every line after the first. */
export type Line =
  | { readonly event: 'link'; readonly verb: 'ADD'; readonly index: number; readonly result: JsonObject }
  /** The plugin returned the result of the one before it unchanged. */
  | { readonly event: 'link'; readonly verb: 'ADD'; readonly index: number; readonly same: true }
  | { readonly event: 'link'; readonly verb: 'ADD'; readonly index: number; readonly error: RecordedError }
  /**
   * The plugins up to this one are called as one segment: the runner may die before it has read their replies.
   */
  | { readonly event: 'segment'; readonly verb: 'ADD'; readonly last: number }
  | { readonly event: 'done'; readonly op: string }
  | { readonly event: 'begin'; readonly verb: 'DEL'; readonly runner: Runner }
  /** Plugins are about to change the attachment. */
  | ({ readonly event: 'change'; readonly runner?: Runner } & PendingChange)
  /** They have; the attachment has the new settings and this result. libcni's cached result still has to be written. */
  | { readonly event: 'changed'; readonly result: JsonObject }
  /** The plugins have undone the change. */
  | { readonly event: 'unchanged' }
  /** The cached result is that of the last change. */
  | { readonly event: 'cached' }
  | {
      readonly event: 'failed';
      readonly verb: 'DEL';
      readonly op: string;
      readonly time: string;
      readonly attempts: number;
      readonly errors: readonly RecordedError[];
    };

/** The combined content of a record. */
export interface AttachmentRecord extends Intent {
  readonly file: string;
  /**
   * `adding`: an ADD has begun and not ended. `attached`: it succeeded. `deleting`: a DEL has begun. `failed`: a DEL, or
   * the undo of a failed ADD, did not succeed and waits for its next attempt.
   */
  readonly phase: 'adding' | 'attached' | 'deleting' | 'failed';
  /** Whether the ADD succeeded, regardless of later operations. */
  readonly added: boolean;
  /** In order of the plugins. */
  readonly outcomes: readonly PluginOutcomeLine[];
  /** Index of the last plugin that may have been called without the outcome of the one before; -1 for none. */
  readonly segment: number;
  /** Of the last plugin that returned one. */
  readonly result: JsonObject | undefined;
  /** Operations that have begun and not reported their end, oldest first. */
  readonly runners: readonly Runner[];
  /** A change that has begun and neither succeeded nor been undone: the kernel may have either settings, or a part of each. */
  readonly change: PendingChange | undefined;
  /** What libcni's cached result may still say, because a change has not written it yet. */
  readonly before: (Settings & Pick<AttachmentRecord, 'result'>) | undefined;
  /** Number of successful changes that the file holds. */
  readonly changes: number;
  /** Number of failed DELs. */
  readonly attempts: number;
  readonly lastAttempt: string | undefined;
  readonly lastErrors: readonly RecordedError[];
  /** Number of unreadable lines: cut off, or unknown. */
  readonly unreadable: number;
}
