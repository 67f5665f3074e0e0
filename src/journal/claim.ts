// How do processes agree on who takes an attachment down?
import type { Attachment } from '../cni/attachment.ts';
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

/** The right to change an attachment, which nobody else has until it ends. */
export interface Claim {
  /** The record as it was when the claim was won. */
  readonly record: AttachmentRecord;
  /** All links succeeded: the record goes. */
  drop(): void;
  /** Some failed: they are remembered for the next attempt. */
  fail(errors: readonly RecordedError[]): void;
  /** Nothing was taken down: the record says what it said. */
  leave(): void;
}

/**
 * Begins a DEL in the record, or a repair. Whoever added his line first, of those who live, has the claim: the kernel puts added
 * lines in one order for all.
 * @param wanted looks at the record again once the claim is won: whoever was thought dead may have come to his end in
 *   between, and what he made may stand
 * @returns undefined when there is no record, or it is not wanted; the operation that has the claim when it is another's
 * @throws CniError 5 and 6
 */
export function claimRecord(
  stateDir: string,
  id: Attachment,
  wanted: (record: AttachmentRecord) => boolean = () => true,
  verb: 'DEL' | 'REPAIR' = 'DEL',
): Claim | { readonly holder: Runner } | undefined {
  const before = readRecord(stateDir, id);
  if (before === undefined) return undefined;
  const busy = holderOf(before);
  // Without a line of ours: whoever waits looks again and again.
  if (busy !== undefined) return { holder: busy };
  const open = reopenRecord(stateDir, id);
  if (open === undefined) return undefined;
  const runner = startRunner();
  let won: AttachmentRecord | undefined;
  try {
    open.append({ event: 'begin', verb, runner });
    // Somebody may have taken the mark away just before there was a reason for it.
    markRecord(stateDir, id);
    // By its path, not by what is open: another one may have taken its place.
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

/** Whoever works on the attachment now. */
export function holderOf({ runners }: AttachmentRecord): Runner | undefined {
  return runners.find(isAlive);
}

/** Failed attempts after which all of them are written as one: a record must not grow for ever. */
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
        // On a full disk, for example: it counts as left when this process has ended.
        if (!(error instanceof CniError)) throw error;
      } finally {
        endRunner(runner);
        tidy(stateDir, record);
      }
    },
  };
}

/** Opening a record has marked it; what stands needs no mark. */
function tidy(stateDir: string, id: Attachment): void {
  try {
    unmark(stateDir, markOf(stateDir, id));
  } catch {
    // Whoever comes next finds the mark, and says what is wrong with the record.
  }
}

/** Only whoever has the claim may: lines that others add meanwhile are lost to them, and they notice. */
function rewrite(stateDir: string, record: AttachmentRecord, last: Line): void {
  const { network, containerId, ifname, netns, netnsIdentity, boot, owner, args, capabilityArgs } = record;
  const { source, pluginDirs, executables, cacheDir, request, runner, outcomes, together, added } = record;
  const id = { network, containerId, ifname };
  const inputs = { netns, netnsIdentity, boot, owner, args, capabilityArgs, source };
  const asked = request === undefined ? {} : { request };
  const intent: Intent = { ...id, ...inputs, pluginDirs, executables, ...asked, cacheDir, runner };
  const links = outcomes.map(({ index, result, error }): Line => {
    const place = { event: 'link', verb: 'ADD', index } as const;
    return error ? { ...place, error } : { ...place, result: result ?? {} };
  });
  const ahead: Line[] = together < 0 ? [] : [{ event: 'together', verb: 'ADD', last: together }];
  const done: Line[] = added ? [{ event: 'done', op: runner.op }] : [];
  replaceRecord(stateDir, intent, [...ahead, ...links, ...done, last]);
}
