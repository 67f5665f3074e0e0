// What does the record of an attachment hold?
//
// The first line says what an ADD is about to do. One line follows for the outcome of each link, then `done`. A DEL
// says `begin`, and `failed` when a link failed; when all succeeded the file is removed. Lines are only ever added, each
// by one write, so that a line that is cut off means that its writer died there.
import type { Attachment } from '../cni/attachment.ts';
import type { CniArgs } from '../cni/cni-args.ts';
import type { JsonObject } from '../cni/json.ts';
import type { Runner } from './runner.ts';

/** What an ADD is about to do. */
export interface Intent extends Attachment {
  /** Path of the network namespace. */
  readonly netns: string;
  /** Device and inode of the namespace; undefined when the path led nowhere. */
  readonly netnsIdentity: string | undefined;
  /** The boot of the machine in which it was written. */
  readonly boot: string;
  /** Who runs the chain; empty when he does not say. */
  readonly owner: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as text, as `Conflist.source` has it. */
  readonly source: string;
  /** Directories in which links were looked for, and what was found there for each. */
  readonly pluginDirs: readonly string[];
  readonly executables: readonly string[];
  /** The caller's name for the ADD: who asks again under it is asking for the first one's result. */
  readonly request?: string;
  /** Where libcni's record of the same attachment is. */
  readonly cacheDir: string;
  readonly runner: Runner;
}

/** A failure as the record keeps it. */
export interface RecordedError {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
  /** Type and index of the link that failed, when one did. */
  readonly link?: string;
  readonly index?: number;
}

/** How a link did on ADD. */
export interface LinkOutcome {
  readonly index: number;
  /** Undefined when it failed. */
  readonly result: JsonObject | undefined;
  readonly error: RecordedError | undefined;
}

/** Every line after the first. */
export type Line =
  | { readonly event: 'link'; readonly verb: 'ADD'; readonly index: number; readonly result: JsonObject }
  /** The link gave the result of the one before it. */
  | { readonly event: 'link'; readonly verb: 'ADD'; readonly index: number; readonly same: true }
  | { readonly event: 'link'; readonly verb: 'ADD'; readonly index: number; readonly error: RecordedError }
  /** Links up to this one are called without the runner hearing of each in between. */
  | { readonly event: 'together'; readonly verb: 'ADD'; readonly last: number }
  | { readonly event: 'done'; readonly op: string }
  /** What `REPAIR` is cut off from stands as it did. */
  | { readonly event: 'begin'; readonly verb: 'DEL' | 'REPAIR'; readonly runner: Runner }
  /** Somebody else was there first, or a repair is over. */
  | { readonly event: 'left'; readonly op: string }
  | {
      readonly event: 'failed';
      readonly verb: 'DEL';
      readonly op: string;
      readonly time: string;
      readonly attempts: number;
      readonly errors: readonly RecordedError[];
    };

/** What a record tells. */
export interface AttachmentRecord extends Intent {
  readonly file: string;
  /**
   * `adding`: an ADD has begun and not ended. `attached`: it succeeded. `deleting`: a DEL has begun. `failed`: a DEL, or
   * undoing a failed ADD, did not succeed and waits for its next attempt.
   */
  readonly phase: 'adding' | 'attached' | 'deleting' | 'failed';
  /** Whether the ADD succeeded, whatever came after it. */
  readonly added: boolean;
  /** In order of the links. */
  readonly outcomes: readonly LinkOutcome[];
  /** Index of the last link that may have been called without the outcome of the one before; -1 for none. */
  readonly together: number;
  /** Of the last link that gave one. */
  readonly result: JsonObject | undefined;
  /** Operations that began and have not said that they ended, first come first. */
  readonly runners: readonly Runner[];
  /** Attempts of DEL that failed. */
  readonly attempts: number;
  readonly lastAttempt: string | undefined;
  readonly lastErrors: readonly RecordedError[];
  /** Lines that nobody can read: cut off, or none of ours. */
  readonly unreadable: number;
}
