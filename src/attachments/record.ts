// What is known of an attachment, and what does a note of it hold?
//
// The entry in libcni's cache says what a settled attachment is (entries.ts). A note exists only while something is unfinished: an ADD that has
// begun, a change, a deletion. Only the operation that has the attachment's lock (lock.ts) writes it, whole, and renames it into place. Decoded by hand: a
// schema library takes 3 ms to start, which every DEL would pay.
import type { AttachmentId } from '../cni/attachment.ts';
import type { CniArgs } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../cni/json.ts';
import type { CachedAttachment, MadeByUs } from './entries.ts';
import type { Runner } from './lock.ts';

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

/** Version of the layout; a note of another version is reported and left alone. */
const LAYOUT = 2;

/** A note: one line of JSON. */
export function renderNote({ file: _, isNoted: __, args, ...note }: AttachmentRecord): string {
  return `${JSON.stringify({ record: LAYOUT, ...note, args })}\n`;
}

/**
 * What a note says.
 * @param file names it in the error
 * @throws CniError 6 when it is damaged or not a note
 */
export function parseNote(text: string, file: string): AttachmentRecord {
  const object = tryParse(text);
  if (!isObject(object)) throw damaged(file, 'it is not a JSON object');
  if (object.record !== LAYOUT) {
    const found = object.record === undefined ? 'none' : JSON.stringify(object.record);
    throw damaged(file, `expected layout ${LAYOUT} in "record", found ${found}`);
  }
  const problem = findProblem(object, NOTE);
  if (problem !== undefined) throw damaged(file, problem);
  const { record: _, netnsIdentity, change, lastAttempt, ...note } = object;
  return { ...note, netnsIdentity, change, lastAttempt, file, isNoted: true } as unknown as AttachmentRecord;
}

/** Index of the last plugin that may have begun to work: recovery has to undo all up to it. */
export function lastBegun({ added, segment }: AttachmentRecord, plugins: number): number {
  return added ? plugins - 1 : Math.min(segment, plugins - 1);
}

/** A type that a value may have: its human-readable name, and its check. */
interface Kind {
  readonly name: string;
  is(value: unknown): boolean;
}

type Shape = Readonly<Record<string, Kind>>;

const TEXT: Kind = { name: 'a string', is: value => typeof value === 'string' };
const NAME: Kind = { name: 'a non-empty string', is: value => TEXT.is(value) && value !== '' };
const NUMBER: Kind = { name: 'a number', is: value => typeof value === 'number' && Number.isFinite(value) };
const INDEX: Kind = { name: 'an index', is: value => Number.isSafeInteger(value) && (value as number) >= 0 };
const OBJECT: Kind = { name: 'an object', is: isObject };
const PAIR: Kind = {
  name: 'two strings',
  is: value => Array.isArray(value) && value.length === 2 && value.every(TEXT.is),
};

const exactly = (...values: readonly unknown[]): Kind => ({
  name: values.map(value => JSON.stringify(value)).join(' or '),
  is: value => values.includes(value),
});
const optional = (kind: Kind): Kind => ({
  name: kind.name,
  is: value => value === undefined || kind.is(value),
});
const listOf = (kind: Kind): Kind => ({
  name: `a list, each ${kind.name}`,
  is: value => Array.isArray(value) && value.every(kind.is),
});
const shaped = (name: string, shape: Shape): Kind => ({
  name,
  is: value => isObject(value) && findProblem(value, shape) === undefined,
});

const RUNNER = shaped('a runner', {
  pid: NUMBER,
  start: TEXT,
  pidns: TEXT,
  op: TEXT,
  time: TEXT,
  deadlineMs: optional(NUMBER),
});

const SETTINGS = shaped('settings', { capabilityArgs: OBJECT, source: TEXT });

const ERROR = shaped('an error', {
  code: NUMBER,
  msg: TEXT,
  details: optional(TEXT),
  link: optional(TEXT),
  index: optional(NUMBER),
});

const NOTE: Shape = {
  network: NAME,
  containerId: NAME,
  ifname: NAME,
  netns: TEXT,
  netnsIdentity: optional(TEXT),
  netnsCookie: optional(TEXT),
  hostCookie: optional(TEXT),
  boot: TEXT,
  owner: TEXT,
  args: listOf(PAIR),
  capabilityArgs: OBJECT,
  source: TEXT,
  pluginDirs: listOf(TEXT),
  executables: listOf(TEXT),
  cacheDir: TEXT,
  result: optional(OBJECT),
  request: optional(TEXT),
  foreign: optional(exactly(true)),
  generation: optional(TEXT),
  runner: RUNNER,
  phase: exactly('adding', 'attached', 'deleting', 'failed'),
  added: exactly(true, false),
  segment: { name: 'an index, or -1', is: value => value === -1 || INDEX.is(value) },
  runners: listOf(RUNNER),
  change: optional(shaped('a change', { to: SETTINGS, plugins: listOf(INDEX), op: TEXT })),
  attempts: INDEX,
  lastAttempt: optional(TEXT),
  lastErrors: listOf(ERROR),
};

function findProblem(object: JsonObject, shape: Shape): string | undefined {
  for (const [key, kind] of Object.entries(shape)) {
    const value = Object.hasOwn(object, key) ? object[key] : undefined;
    if (kind.is(value)) continue;
    const found = value === undefined ? 'it is missing' : `found ${JSON.stringify(value).slice(0, 100)}`;
    return `"${key}" must be ${kind.name}, ${found}`;
  }
  return undefined;
}

function damaged(file: string, problem: string): CniError {
  return new CniError(ErrorCode.decodingFailure, `Cannot read note "${file}": ${problem}`);
}
