// How does an ADD keep its record while it runs?
import { CniError, toCniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { bootId } from '../journal/boot.ts';
import { settle } from '../journal/marks.ts';
import { findNetnsIdentity } from '../journal/netns-identity.ts';
import type { Intent, Line, RecordedError } from '../journal/record.ts';
import { endRunner, startRunner } from '../journal/runner.ts';
import { createRecord, dropRecord, type OpenRecord, replaceRecord } from '../journal/store.ts';
import type { Conflist } from './conflist.ts';
import { idOf } from './frozen.ts';
import { type Attachment, cacheDirOf, type Runtime } from './runtime.ts';

/** The record of an ADD under way. Without a journal it does nothing. */
export interface AddRecord {
  /** Links up to this one are about to be called without a word in between. @throws CniError 5 */
  together(last: number): void;
  /** A link succeeded. @throws CniError 5 */
  link(index: number, result: JsonObject): void;
  /** A link failed; what comes now is undoing. */
  linkFailed(index: number, error: unknown): void;
  /** All links succeeded. @throws CniError 5 */
  done(): void;
  /** Everything was undone: there is nothing to remember. */
  drop(): void;
  /** Undoing failed: it is tried again later. */
  fail(errors: readonly unknown[]): void;
  /** An ADD over a standing attachment failed: the record stays that of the earlier one. */
  leave(): void;
}

/**
 * Writes down what is about to be done.
 * @param standing the record on disk is that of an earlier ADD, whose attachment stands: it is replaced when this one
 *   has succeeded, and not before
 * @throws CniError 5: nothing must be done then that nobody could take back
 */
export function beginRecord(
  list: Conflist,
  attachment: Attachment,
  runtime: Runtime,
  { executables, standing }: { readonly executables: readonly string[]; readonly standing: boolean },
): AddRecord {
  const { stateDir } = runtime;
  if (stateDir === undefined) return NONE;
  const intent = intentOf(list, attachment, runtime, executables);
  try {
    return standing ? recordAtEnd(stateDir, intent) : recordNow(stateDir, intent);
  } catch (error) {
    endRunner(intent.runner);
    throw error;
  }
}

/** What the record keeps of a failure. */
export function toRecorded(thrown: unknown): RecordedError {
  const { code, message, details, link } = toCniError(thrown);
  const place = link ? { link: link.link, index: link.index } : {};
  return { code, msg: message, ...(details === undefined ? {} : { details }), ...place };
}

const NONE: AddRecord = {
  together() {},
  link() {},
  linkFailed() {},
  done() {},
  drop() {},
  fail() {},
  leave() {},
};

function intentOf(
  list: Conflist,
  attachment: Attachment,
  runtime: Runtime,
  executables: readonly string[],
): Intent {
  const { netns, args = [], capabilityArgs = {} } = attachment;
  const { env, owner = '', pluginDirs, request } = runtime;
  return {
    ...idOf(list, attachment),
    netns,
    netnsIdentity: findNetnsIdentity(netns),
    boot: bootId(env),
    owner,
    args,
    capabilityArgs,
    source: list.source,
    pluginDirs,
    executables,
    ...(request === undefined ? {} : { request }),
    cacheDir: cacheDirOf(runtime),
    runner: startRunner(),
  };
}

function recordNow(stateDir: string, intent: Intent): AddRecord {
  const open = createRecord(stateDir, intent);
  const lines = linesOf(line => open.append(line));
  return {
    ...lines,
    together: last => open.append({ event: 'together', verb: 'ADD', last }),
    done() {
      open.append({ event: 'done', op: intent.runner.op });
      settle(stateDir, intent);
      end(open, intent);
    },
    drop() {
      end(open, intent);
      unlessUnwritable(() => dropRecord(stateDir, intent));
    },
    fail(errors) {
      const failed = { event: 'failed', verb: 'DEL', attempts: 1 } as const;
      const time = new Date().toISOString();
      unlessUnwritable(() =>
        open.append({ ...failed, op: intent.runner.op, time, errors: errors.map(toRecorded) }),
      );
      end(open, intent);
    },
    leave: () => end(open, intent),
  };
}

function recordAtEnd(stateDir: string, intent: Intent): AddRecord {
  const written: Line[] = [];
  const leave = () => endRunner(intent.runner);
  return {
    ...linesOf(line => written.push(line)),
    // Nothing of it is undone: what stands is the earlier ADD's.
    together() {},
    done() {
      replaceRecord(stateDir, intent, [...written, { event: 'done', op: intent.runner.op }]);
      leave();
    },
    drop: leave,
    fail: leave,
    leave,
  };
}

function linesOf(write: (line: Line) => void): Pick<AddRecord, 'link' | 'linkFailed'> {
  let last: string | undefined;
  return {
    link(index, result) {
      const text = JSON.stringify(result);
      const place = { event: 'link', verb: 'ADD', index } as const;
      write(text === last ? { ...place, same: true } : { ...place, result });
      last = text;
    },
    linkFailed(index, error) {
      unlessUnwritable(() => write({ event: 'link', verb: 'ADD', index, error: toRecorded(error) }));
    },
  };
}

/**
 * After a failure nothing may hide why it came. What the record still says is that the ADD was cut off, so that a recovery
 * undoes the same links once more.
 */
function unlessUnwritable(write: () => void): void {
  try {
    write();
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
  }
}

function end(open: OpenRecord, { runner }: Intent): void {
  open.close();
  endRunner(runner);
}
