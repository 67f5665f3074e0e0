// How do processes agree on which one takes an attachment down?
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { markOf } from './marks.ts';
import type { AttachmentRecord, Intent, Line, RecordedError, Settings } from './record.ts';
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
  /** Adds a line. @throws CniError 5: it was not written */
  note(line: Line): void;
  /** Writes the record again with another list and results; the claim stays. @throws CniError 5: the record is unchanged */
  restate(source: string, results: readonly JsonObject[]): void;
  /** Nothing was taken down: the record's content stays. */
  leave(): void;
}

/**
 * Begins a DEL, a repair or a change in the record. Of the living processes, the one whose line was appended first has the claim: all
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
  verb: 'DEL' | 'REPAIR' | 'CHANGE' = 'DEL',
  deadlineMs?: number,
): Claim | { readonly holder: Runner } | undefined {
  for (let tries = 0; tries < CLAIM_TRIES; tries++) {
    const outcome = claimOnce(stateDir, id, wanted, verb, deadlineMs);
    if (outcome !== 'replaced') return outcome;
  }
  throw new CniError(
    ErrorCode.ioFailure,
    `Cannot begin ${verb} of interface "${id.ifname}" of container "${id.containerId}": what is written to its record is not in it afterwards (${CLAIM_TRIES} times); check the file system of "${stateDir}"`,
  );
}

/** Each loss of a line needs another operation to merge the lines of the record in the same moment. */
const CLAIM_TRIES = 20;

/** @returns `replaced` if another operation merged the lines of the record at that moment, and ours was lost */
function claimOnce(
  stateDir: string,
  id: AttachmentId,
  wanted: (record: AttachmentRecord) => boolean,
  verb: 'DEL' | 'REPAIR' | 'CHANGE',
  deadlineMs: number | undefined,
): Claim | { readonly holder: Runner } | 'replaced' | undefined {
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
    if (after && !after.record.runners.some(({ op }) => op === runner.op)) return 'replaced';
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

/** Number of failed attempts, or of changes, after which their lines are merged into one: a record must not grow for ever. */
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
    note(line) {
      const open = reopenRecord(stateDir, record);
      if (open === undefined) throw gone(record);
      try {
        open.append(line);
      } finally {
        open.close();
      }
    },
    restate(source, results) {
      const links = results.map((result, index): Line => ({ event: 'link', verb: 'ADD', index, result }));
      const done: Line = { event: 'done', op: record.runner.op };
      const { capabilityArgs } = record;
      // Other operations must still find ours.
      const begin: Line = { event: 'begin', verb: 'CHANGE', runner };
      replaceRecord(stateDir, intentOf(record, { capabilityArgs, source }), [...links, done, begin]);
    },
    leave() {
      try {
        const now = readRecord(stateDir, record);
        if (now && isLong(now)) {
          rewrite(stateDir, now);
          return;
        }
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

/** Whether lines of changes are to be merged, and every one of them is complete. */
function isLong({ phase, changes, change, before }: AttachmentRecord): boolean {
  return phase === 'attached' && changes >= ATTEMPTS_KEPT && !change && !before;
}

function gone({ containerId, ifname, file }: AttachmentRecord): CniError {
  return new CniError(
    ErrorCode.ioFailure,
    `Cannot record a change of interface "${ifname}" of container "${containerId}": "${file}" was removed`,
  );
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
function rewrite(stateDir: string, record: AttachmentRecord, last?: Line): void {
  const { capabilityArgs, source, runner } = record;
  const { outcomes, segment, added, change, before, changes, result } = record;
  const start = before ?? { capabilityArgs, source, result };
  const intent = intentOf(record, start);
  const links = outcomes.map(({ index, result, error }): Line => {
    const place = { event: 'link', verb: 'ADD', index } as const;
    return error ? { ...place, error } : { ...place, result: result ?? {} };
  });
  const ahead: Line[] = segment < 0 ? [] : [{ event: 'segment', verb: 'ADD', last: segment }];
  const done: Line[] = added ? [{ event: 'done', op: runner.op }] : [];
  const changed: Line[] = [
    ...(changes && start.result ? [{ event: 'changed', result: start.result } as const] : []),
    ...(before ? [{ event: 'change', to: { capabilityArgs, source }, plugins: [] } as const] : []),
    ...(before && result ? [{ event: 'changed', result } as const] : []),
    ...(change ? [{ event: 'change', ...change } as const] : []),
  ];
  replaceRecord(stateDir, intent, [...ahead, ...links, ...done, ...changed, ...(last ? [last] : [])]);
}

/** The first line of a record with these settings. */
function intentOf(record: AttachmentRecord, { capabilityArgs, source }: Settings): Intent {
  const { network, containerId, ifname, netns, boot, owner, args } = record;
  const { netnsIdentity, netnsCookie, hostCookie } = record;
  const { pluginDirs, executables, cacheDir, request, adopted, generation, runner } = record;
  const id = { network, containerId, ifname };
  const inputs = { netns, netnsIdentity, boot, owner, args, capabilityArgs, source };
  const more = {
    ...(netnsCookie === undefined ? {} : { netnsCookie }),
    ...(hostCookie === undefined ? {} : { hostCookie }),
    ...(request === undefined ? {} : { request }),
    ...(adopted === undefined ? {} : { adopted }),
    ...(generation === undefined ? {} : { generation }),
  };
  return { ...id, ...inputs, ...more, pluginDirs, executables, cacheDir, runner };
}
