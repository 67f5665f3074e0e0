// How do processes agree on which one takes an attachment down?
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError } from '../cni/errors.ts';
import { markOf } from './marks.ts';
import type { AttachmentRecord, Intent, Line, RecordedError } from './record.ts';
import { endRunner, isAlive, type Runner, startRunner } from './runner.ts';
import {
  dropRecord,
  markRecord,
  readRecord,
  readSplit,
  reopenRecord,
  replaceRecord,
  unmark,
} from './store.ts';

/** The exclusive right to change an attachment, until it is ended by one of these methods. */
export interface Claim {
  /** The record as it was when the claim was won. */
  readonly record: AttachmentRecord;
  /** All plugins succeeded: deletes the record. */
  drop(): void;
  /** Some plugins failed: records them for the next attempt. */
  fail(errors: readonly RecordedError[]): void;
  /** Nothing was taken down: the record's content stays. */
  leave(): void;
}

/**
 * Begins a DEL, or a repair, in the record. Of the living processes, the one whose line was appended first has the claim: all
 * of them see the appended lines in one order, the kernel's.
 * @param wanted checks the record again once the claim is won: a runner that was thought dead may have finished in between, and
 *   its attachment may exist
 * @param deadlineMs milliseconds after which the operation ends a plugin
 * @returns undefined if there is no record, or it is not wanted; the other operation if that has the claim
 * @throws CniError 5 and 6
 */
export function claimRecord(
  stateDir: string,
  id: AttachmentId,
  wanted: (record: AttachmentRecord) => boolean = () => true,
  verb: 'DEL' | 'REPAIR' = 'DEL',
  deadlineMs?: number,
): Claim | { readonly holder: Runner } | undefined {
  const before = readRecord(stateDir, id);
  if (before === undefined) return undefined;
  const busy = holderOf(before);
  // Return before appending a line: a caller that waits tries again and again.
  if (busy !== undefined) return { holder: busy };
  const open = reopenRecord(stateDir, id);
  if (open === undefined) return undefined;
  const runner = startRunner(deadlineMs);
  let won: AttachmentRecord | undefined;
  try {
    open.append({ event: 'begin', verb, runner });
    // Another process may have removed the mark just before this line was appended.
    markRecord(stateDir, id);
    // Read it by path, not from the open file, which another one may have replaced.
    const after = readSplit(stateDir, id, runner.op);
    const holder = after && holderOf(after.record);
    const others = holder?.op === runner.op ? after?.others : undefined;
    if (others && wanted(others)) won = after?.record;
    else {
      open.append({ event: 'left', op: runner.op });
      return others || !holder ? undefined : { holder };
    }
  } finally {
    open.close();
    if (won === undefined) {
      endRunner(runner);
      tidy(stateDir, id);
    }
  }
  return won && claimOf(stateDir, won, runner);
}

/** The living operation that holds the attachment. */
export function holderOf({ runners }: AttachmentRecord): Runner | undefined {
  return runners.find(isAlive);
}

/** Number of failed attempts after which their lines are merged into one: a record must not grow for ever. */
const ATTEMPTS_KEPT = 32;

function claimOf(stateDir: string, record: AttachmentRecord, runner: Runner): Claim {
  return {
    record,
    drop() {
      try {
        dropRecord(stateDir, record);
      } finally {
        endRunner(runner);
      }
    },
    fail(errors) {
      const attempts = record.attempts + 1;
      const time = new Date().toISOString();
      const failed: Line = { event: 'failed', verb: 'DEL', op: runner.op, time, attempts, errors };
      try {
        if (attempts % ATTEMPTS_KEPT === 0) rewrite(stateDir, record, failed);
        else {
          const open = reopenRecord(stateDir, record);
          open?.append(failed);
          open?.close();
        }
      } finally {
        endRunner(runner);
      }
    },
    leave() {
      try {
        const open = reopenRecord(stateDir, record);
        open?.append({ event: 'left', op: runner.op });
        open?.close();
      } catch (error) {
        // On a full disk, for example. The claim ends with this process.
        if (!(error instanceof CniError)) throw error;
      } finally {
        endRunner(runner);
        tidy(stateDir, record);
      }
    },
  };
}

/** Removes the mark that opening the record has set, if the record is settled. */
function tidy(stateDir: string, id: AttachmentId): void {
  try {
    unmark(stateDir, markOf(stateDir, id));
  } catch {
    // The next process that finds the mark reports the problem of the record.
  }
}

/** Allowed only with the claim: lines that other processes append at the same time are lost, and they notice that. */
function rewrite(stateDir: string, record: AttachmentRecord, last: Line): void {
  const { network, containerId, ifname, netns, boot, owner, args, capabilityArgs } = record;
  const { netnsIdentity, netnsCookie } = record;
  const { source, pluginDirs, executables, cacheDir, request, adopted, runner } = record;
  const { outcomes, segment, added } = record;
  const id = { network, containerId, ifname };
  const inputs = { netns, netnsIdentity, boot, owner, args, capabilityArgs, source };
  const more = {
    ...(netnsCookie === undefined ? {} : { netnsCookie }),
    ...(request === undefined ? {} : { request }),
    ...(adopted === undefined ? {} : { adopted }),
  };
  const intent: Intent = { ...id, ...inputs, ...more, pluginDirs, executables, cacheDir, runner };
  const links = outcomes.map(({ index, result, error }): Line => {
    const place = { event: 'link', verb: 'ADD', index } as const;
    return error ? { ...place, error } : { ...place, result: result ?? {} };
  });
  const ahead: Line[] = segment < 0 ? [] : [{ event: 'segment', verb: 'ADD', last: segment }];
  const done: Line[] = added ? [{ event: 'done', op: runner.op }] : [];
  replaceRecord(stateDir, intent, [...ahead, ...links, ...done, last]);
}
