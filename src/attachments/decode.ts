// How is a note written, and is what is read one?
//
// Written by hand: a schema library takes 3 ms to start, which every DEL would pay.
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../cni/json.ts';
import type { AttachmentRecord } from './record.ts';

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
export function lastBegun({ added, segment }: AttachmentRecord, links: number): number {
  return added ? links - 1 : Math.min(segment, links - 1);
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
