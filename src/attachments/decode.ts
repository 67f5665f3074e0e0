// Is a line of a note valid?
//
// Written by hand: a schema library takes 3 ms to start, which every DEL would pay.
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../cni/json.ts';
import type { Intent, Line } from './record.ts';

/** Version of the layout; a record of another version is reported and left alone. */
export const RECORD_VERSION = 1;

/**
 * The first line.
 * @param file names it in the error
 * @throws CniError 6
 */
export function decodeIntent(text: string, file: string): Intent {
  const object = tryParse(text);
  if (!isObject(object)) throw damaged(file, 'its first line is not a JSON object');
  if (object.record !== RECORD_VERSION) {
    const found = object.record === undefined ? 'none' : JSON.stringify(object.record);
    throw damaged(file, `expected layout ${RECORD_VERSION} in "record" of its first line, found ${found}`);
  }
  const problem = findProblem(object, INTENT);
  if (problem !== undefined) throw damaged(file, problem);
  const { record: _, netnsIdentity, ...intent } = object;
  return { ...intent, netnsIdentity } as unknown as Intent;
}

/** Any later line; undefined if it is cut off or unknown. */
export function decodeLine(text: string): Line | undefined {
  const object = tryParse(text);
  if (!isObject(object) || typeof object.event !== 'string') return undefined;
  const shape = Object.hasOwn(LINES, object.event) ? LINES[object.event] : undefined;
  return shape && findProblem(object, shape) === undefined ? (object as Line) : undefined;
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

const INTENT: Shape = {
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
  added: optional(exactly(true)),
  result: optional(OBJECT),
  request: optional(TEXT),
  foreign: optional(exactly(true)),
  generation: optional(TEXT),
  runner: RUNNER,
};

const SETTINGS = shaped('settings', { capabilityArgs: OBJECT, source: TEXT });

const ERROR = shaped('an error', {
  code: NUMBER,
  msg: TEXT,
  details: optional(TEXT),
  link: optional(TEXT),
  index: optional(NUMBER),
});

const LINES: Readonly<Record<Line['event'], Shape>> & Readonly<Record<string, Shape>> = {
  segment: { last: INDEX, result: optional(OBJECT) },
  begin: { runner: RUNNER },
  change: { to: SETTINGS, plugins: listOf(INDEX), runner: RUNNER },
  failed: { op: TEXT, time: TEXT, attempts: NUMBER, errors: listOf(ERROR) },
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
