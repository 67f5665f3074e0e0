// How is foreign JSON read: objects, letter case of keys, misspelt words, and errors that name the offending path?

import * as z from 'zod/mini';
import { attempt, CniError, decodingFailure, ErrorCode } from './errors.ts';

/**
 * The members that are not undefined, in their order: `{ name, ...defined({ mtu, mac }) }`. So an optional member is absent, as in
 * JSON, and does not replace one of the same name when it is spread over another object.
 */
export function defined<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const kept: Partial<T> = {};
  for (const key of Object.keys(members) as (keyof T)[]) {
    if (members[key] !== undefined) kept[key] = members[key];
  }
  return kept as { [K in keyof T]?: Exclude<T[K], undefined> };
}

/** A JSON object with any keys. */
export type JsonObject = { [key: string]: unknown };

/** What a schema describes, for those who only read it. */
export type ValueOf<Schema extends z.ZodMiniType> = Unwritable<z.output<Schema>>;

type Unwritable<T> = T extends readonly (infer Item)[]
  ? readonly Unwritable<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Unwritable<T[Key]> }
    : T;

/** True for a JSON object: not null, not an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The members of an object that are text; of any other value, none. */
export function textsIn(value: unknown): Readonly<Record<string, string>> {
  const all = Object.entries(isObject(value) ? value : {});
  return Object.fromEntries(all.filter((one): one is [string, string] => typeof one[1] === 'string'));
}

/** The objects in the list that an object has under a key in any letter case; none in anything else. */
export function objectsIn(value: unknown, key: string): JsonObject[] {
  const list = isObject(value) ? memberOf(value, key) : undefined;
  return Array.isArray(list) ? list.filter(isObject) : [];
}

/** The value of a JSON text; undefined if the text is not JSON. */
export function tryParse(text: string): unknown {
  return attempt(() => JSON.parse(text));
}

/**
 * The value of a JSON text.
 * @param refuse makes the error to throw from what is wrong with the text
 */
export function parseJson(text: string, refuse: (problem: string, cause: unknown) => Error): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw refuse((cause as Error).message, cause);
  }
}

/**
 * Parses a document that must be one JSON object.
 * @param what names the document in the error ("network configuration on standard input")
 * @throws CniError 6
 */
export function parseObject(text: string, what: string): JsonObject {
  const value = parseJson(text, (problem, cause) => {
    return decodingFailure(`Cannot decode ${what}: ${problem}`, { cause });
  });
  if (!isObject(value)) {
    const found = value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`;
    throw decodingFailure(`Cannot decode ${what}: expected a JSON object, found ${found}`);
  }
  return value;
}

/**
 * Validates a value against a schema after folding the letter case of its keys to the schema's. This accepts what Go's
 * decoder accepts (`HostPort` from containerd, `RuntimeConfig`). `null` counts as absent.
 * @throws CniError with `code` (7 unless given), naming the path and the value found
 */
export function decode<T extends z.core.$ZodType>(
  schema: T,
  value: unknown,
  what: string,
  code: number = ErrorCode.invalidConfig,
): z.output<T> {
  return check(schema, foldKeys(schema, value), what, code);
}

/**
 * Decodes the configuration of a call. DEL takes what is valid, as who deletes cannot mend the rest.
 * @returns also what is wrong with the rest
 * @throws CniError 7 as {@link decode}; for a DEL when the schema takes nothing of it
 */
export function decodeFor<T extends z.core.$ZodType>(
  command: string,
  schema: T,
  value: unknown,
  what: string,
): { readonly conf: z.output<T>; readonly problems: readonly string[] } {
  const problems: string[] = [];
  for (let left = foldKeys(schema, value); command === 'DEL'; ) {
    const parsed = z.safeParse(schema, left, { reportInput: true });
    if (parsed.success) return { conf: parsed.data, problems };
    const { issues } = parsed.error;
    problems.push(...issues.map(describeIssue));
    const parts = issues.map(({ path }) => presentPart(left, path));
    if (parts.some(part => part.length === 0)) break;
    // The value may still be part of the request.
    left = structuredClone(left);
    for (const part of parts) dropPart(left, part);
  }
  return { conf: decode(schema, value, what), problems };
}

/** The part of a path that is there, to a member of an object: the list of a wrong element, and the object that misses one. */
function presentPart(value: unknown, [key, ...more]: readonly PropertyKey[]): readonly PropertyKey[] {
  const holder = value as Readonly<Record<PropertyKey, unknown>>;
  if (key === undefined || typeof value !== 'object' || value === null || !Object.hasOwn(value, key))
    return [];
  const rest = presentPart(holder[key], more);
  return rest.length === 0 && typeof key === 'number' ? [] : [key, ...rest];
}

function dropPart(value: unknown, [key = '', ...more]: readonly PropertyKey[]): void {
  const holder = value as Record<PropertyKey, unknown> | undefined;
  if (more.length > 0) dropPart(holder?.[key], more);
  else delete holder?.[key];
}

/**
 * Validates like {@link decode}, but returns the folded value itself instead of the schema's copy. It contains every
 * unknown key, including `__proto__`.
 * @throws CniError as {@link decode}
 */
export function checkObject(
  schema: z.core.$ZodType<JsonObject>,
  value: JsonObject,
  what: string,
  code: number,
): JsonObject {
  const folded = foldKeys(schema, value);
  check(schema, folded, what, code);
  return folded as JsonObject;
}

function check<T extends z.core.$ZodType>(
  schema: T,
  value: unknown,
  what: string,
  code: number,
): z.output<T> {
  const parsed = z.safeParse(schema, value, { reportInput: true });
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  const told = issues.slice(0, MAX_ISSUES).map(describeIssue);
  const more = issues.length > told.length ? [`and ${issues.length - told.length} more`] : [];
  throw new CniError(code, `Cannot use ${what}: ${[...told, ...more].join('; ')}`);
}

/**
 * A copy of the value without null members, in which keys that match a key of the schema except for letter case get the
 * schema's spelling. An exact key wins over a folded one; unknown keys are left unchanged.
 */
export function foldKeys(schema: z.core.$ZodType, value: unknown): unknown {
  const { type, innerType, element, valueType, shape } = (schema as { _zod: { def: SchemaDef } })._zod.def;
  if (innerType !== undefined) return foldKeys(innerType, value);
  if (type === 'array' && element && Array.isArray(value)) return value.map(item => foldKeys(element, item));
  if (type === 'record' && valueType && isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, foldKeys(valueType, item)]));
  if (type !== 'object' || !shape || !isObject(value)) return value;
  const byLowerCase = keysByLowerCase(shape);
  const folded: JsonObject = {};
  for (const [key, member] of Object.entries(value)) {
    const known = byLowerCase.get(foldKey(key));
    const target = known ?? key;
    if (member === null && known !== undefined) continue;
    if (target !== key && Object.hasOwn(value, target)) continue;
    const field = known === undefined ? undefined : shape[known];
    setOwn(folded, target, field ? foldKeys(field, member) : member);
  }
  return folded;
}

/** The member of a key in any letter case, as Go's decoder finds it; an exact match first. Null counts as absent. */
export function memberOf(object: JsonObject, key: string): unknown {
  const isExact = Object.hasOwn(object, key) && object[key] !== undefined;
  const found = isExact ? key : Object.keys(object).findLast(one => foldKey(one) === foldKey(key));
  return found === undefined ? undefined : (object[found] ?? undefined);
}

/** Equal for keys that are one to Go's decoder, which also folds the two letters beyond ASCII that have one there: the long s and the Kelvin sign. */
export function foldKey(key: string): string {
  return key.toLowerCase().replaceAll('ſ', 's');
}

interface SchemaDef {
  readonly type: string;
  readonly innerType?: z.core.$ZodType;
  readonly element?: z.core.$ZodType;
  readonly valueType?: z.core.$ZodType;
  readonly shape?: Readonly<Record<string, z.core.$ZodType>>;
}

const KEYS_BY_LOWER_CASE = new WeakMap<object, ReadonlyMap<string, string>>();

function keysByLowerCase(shape: object): ReadonlyMap<string, string> {
  const known = KEYS_BY_LOWER_CASE.get(shape) ?? new Map(Object.keys(shape).map(key => [foldKey(key), key]));
  KEYS_BY_LOWER_CASE.set(shape, known);
  return known;
}

/** Assigning to `__proto__` directly would change the prototype instead of adding a member. */
function setOwn(target: JsonObject, key: string, value: unknown): void {
  if (key !== '__proto__') target[key] = value;
  else Object.defineProperty(target, key, { value, enumerable: true, writable: true, configurable: true });
}

/**
 * Describes what is wrong with a value: `"ips[0].address" must be of type string, found 5`. zod/mini carries no texts of its
 * own, which saves a plugin from loading a locale. Parse with `reportInput`.
 */
export function describeIssue(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') return describeUnknownKeys(issue);
  const path = issue.path.map((part, i) =>
    typeof part === 'number' ? `[${part}]` : `${i ? '.' : ''}${String(part)}`,
  );
  const where = path.length ? `"${path.join('')}" ` : '';
  const found = issue.input === undefined ? 'it is missing' : `found ${quote(issue.input)}`;
  return `${where}${expectationOf(issue)}, ${found}`;
}

function describeUnknownKeys({ path, keys }: z.core.$ZodIssueUnrecognizedKeys): string {
  const names = keys.map(key => JSON.stringify([...path, key].map(String).join('.')));
  return `${names.join(', ')} ${names.length === 1 ? 'is not a known key' : 'are not known keys'}`;
}

/** Quotes enough of a value to recognise it, on one line. */
export function quote(value: unknown, maxChars = MAX_QUOTE): string {
  if (typeof value === 'string')
    return JSON.stringify(value.length > maxChars ? `${value.slice(0, maxChars)}…` : value);
  const text = JSON.stringify(value);
  return text.length > maxChars ? `${text.slice(0, maxChars)}…` : text;
}

const MAX_QUOTE = 1_000;
const MAX_ISSUES = 10;

function expectationOf(issue: z.core.$ZodIssue): string {
  // A message of the schema's own; without a locale, zod's own message is always "Invalid input".
  if (issue.message && issue.message !== 'Invalid input') return issue.message;
  if (issue.code === 'invalid_type') return `must be of type ${issue.expected}`;
  if (issue.code === 'too_small') return `must be at least ${issue.minimum}`;
  if (issue.code === 'too_big') return `must be at most ${issue.maximum}`;
  if (issue.code === 'invalid_value')
    return `must be one of ${issue.values.map(v => JSON.stringify(v)).join(', ')}`;
  return 'is not valid';
}

/** Lines of a text that arrives in pieces: programs write one JSON value in each (https://jsonlines.org). */
export class LineSplitter {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #mostChars: number;
  #pieces: string[] = [];
  #size = 0;

  constructor(mostChars = Number.POSITIVE_INFINITY) {
    this.#mostChars = mostChars;
  }

  /**
   * @returns the lines that this piece completes, without line breaks
   * @throws Error for a line that is too long
   */
  push(piece: Uint8Array): string[] {
    const [first = '', ...others] = this.#decoder.decode(piece, { stream: true }).split('\n');
    this.#pieces.push(first);
    this.#size += first.length;
    if (this.#size > this.#mostChars) throw new Error('a line of its reply is too long');
    const rest = others.pop();
    if (rest === undefined) return [];
    const whole = this.#pieces.join('');
    [this.#pieces, this.#size] = [[rest], rest.length];
    return [whole, ...others];
  }
}

/** `; did you mean "mtu"?` for the nearest known word, or an empty text if none is near. */
export function didYouMean(word: string, known: Iterable<string>): string {
  const nearest = findNearest(word, known);
  return nearest === undefined ? '' : `; did you mean "${nearest}"?`;
}

/** The known word with the smallest edit distance, which may be at most a third of its length. */
export function findNearest(word: string, known: Iterable<string>): string | undefined {
  let best: { word: string; distance: number } | undefined;
  for (const candidate of known) {
    const limit = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    if (Math.abs(word.length - candidate.length) > limit) continue;
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance <= limit && distance < word.length && distance < (best?.distance ?? Infinity))
      best = { word: candidate, distance };
  }
  return best?.word;
}

/** Number of letters to insert, remove, replace or swap with a neighbour to turn one word into the other. */
export function editDistance(a: string, b: string): number {
  let [before, last]: [number[], number[]] = [[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(
        at(row, j - 1) + 1,
        at(last, j) + 1,
        at(last, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1),
        swapped ? at(before, j - 2) + 1 : Infinity,
      );
    }
    [before, last] = [last, row];
  }
  return at(last, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Infinity;
}
