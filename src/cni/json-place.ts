// At which line and column of a JSON text is the mistake?

/** A position in a text; both count from 1, the column in UTF-16 units. */
export interface TextPlace {
  readonly line: number;
  readonly column: number;
}

/** No real configuration is nested this deeply, and every level uses stack space of the scanner. */
const MAX_DEPTH = 1000;

/** The problem that makes a text invalid JSON, or undefined when it is valid. Bun's JSON.parse does not report a position. */
export function findSyntaxProblem(text: string) {
  try {
    scanDocument(text, (path, offset) => {
      if (path.length > MAX_DEPTH) throw new Unexpected(offset, `at most ${MAX_DEPTH} levels`);
    });
    return undefined;
  } catch (error) {
    if (!(error instanceof Unexpected)) throw error;
    return { ...placesIn(text)(error.offset), problem: describe(text, error) };
  }
}

/** Where the value at `path` starts in a valid JSON text; the position of its nearest ancestor when it is absent. */
export function placeOf(text: string, path: readonly (string | number)[]): TextPlace {
  return readPlaces(text).valueAt(path);
}

/** A key that occurred earlier in the same object; decoders silently use the last one. */
interface RepeatedKey extends TextPlace {
  readonly key: string;
}

/** The positions of everything in a JSON text. */
export interface Places {
  /** Where a value starts; the position of its nearest ancestor when it is absent. */
  valueAt(path: readonly (string | number)[]): TextPlace;
  /** Where the key of a value starts; for an array element, the element itself. */
  keyAt(path: readonly (string | number)[]): TextPlace;
  readonly repeated: readonly RepeatedKey[];
}

/** Finds every position in a valid JSON text in one pass. */
export function readPlaces(text: string): Places {
  const found = new Map<string, { value: number; key: number }>();
  const repeated: RepeatedKey[] = [];
  const placeAtOffset = placesIn(text);
  scanDocument(text, (path, value, key = value) => {
    const at = JSON.stringify(path);
    if (key !== value && found.has(at)) repeated.push({ key: String(path.at(-1)), ...placeAtOffset(key) });
    // The last of a repeated key wins, as in JSON.parse.
    found.set(at, { value, key });
  });
  const find = (path: readonly (string | number)[], which: 'value' | 'key'): TextPlace => {
    const exact = found.get(JSON.stringify(path));
    if (exact !== undefined) return placeAtOffset(exact[which]);
    return path.length ? find(path.slice(0, -1), 'value') : placeAtOffset(0);
  };
  return { valueAt: path => find(path, 'value'), keyAt: path => find(path, 'key'), repeated };
}

type Visit = (path: readonly (string | number)[], offset: number, keyOffset?: number) => void;

class Unexpected extends Error {
  readonly offset: number;
  readonly expected: string;

  constructor(offset: number, expected: string) {
    super(expected);
    this.offset = offset;
    this.expected = expected;
  }
}

function scanDocument(text: string, visit: Visit): void {
  const end = skipSpace(text, scanValue(text, skipSpace(text, 0), [], visit));
  if (end < text.length) throw new Unexpected(end, 'the end of the document');
}

/** Each scanner returns the offset after what it read. */
function scanValue(
  text: string,
  at: number,
  path: readonly (string | number)[],
  visit: Visit,
  keyAt?: number,
): number {
  visit(path, at, keyAt);
  if (text[at] === '{') return scanObject(text, at + 1, path, visit);
  if (text[at] === '[') return scanArray(text, at + 1, path, visit);
  if (text[at] === '"') return scanString(text, at);
  const scalar = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/y;
  scalar.lastIndex = at;
  if (!scalar.test(text)) throw new Unexpected(at, 'a value');
  return scalar.lastIndex;
}

function scanObject(text: string, start: number, path: readonly (string | number)[], visit: Visit): number {
  let at = skipSpace(text, start);
  if (text[at] === '}') return at + 1;
  for (;;) {
    if (text[at] !== '"') throw new Unexpected(at, 'a key in double quotes');
    const keyAt = at;
    const keyEnd = scanString(text, at);
    const key = JSON.parse(text.slice(at, keyEnd)) as string;
    at = skipSpace(text, keyEnd);
    if (text[at] !== ':') throw new Unexpected(at, '":" after the key');
    at = skipSpace(text, scanValue(text, skipSpace(text, at + 1), [...path, key], visit, keyAt));
    if (text[at] === '}') return at + 1;
    if (text[at] !== ',') throw new Unexpected(at, '"," or "}"');
    at = skipSpace(text, at + 1);
  }
}

function scanArray(text: string, start: number, path: readonly (string | number)[], visit: Visit): number {
  let at = skipSpace(text, start);
  if (text[at] === ']') return at + 1;
  for (let i = 0; ; i++) {
    at = skipSpace(text, scanValue(text, at, [...path, i], visit));
    if (text[at] === ']') return at + 1;
    if (text[at] !== ',') throw new Unexpected(at, '"," or "]"');
    at = skipSpace(text, at + 1);
  }
}

function scanString(text: string, start: number): number {
  let at = start + 1;
  for (;;) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON forbids exactly these inside a string
    const plain = /[^"\\\u0000-\u001f]*/y;
    plain.lastIndex = at;
    plain.test(text);
    at = plain.lastIndex;
    if (text[at] === '"') return at + 1;
    const escaped = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y;
    escaped.lastIndex = at;
    if (!escaped.test(text))
      throw new Unexpected(at, text[at] === '\\' ? 'a valid escape' : 'the end of the string');
    at = escaped.lastIndex;
  }
}

function skipSpace(text: string, start: number): number {
  let at = start;
  while (text[at] === ' ' || text[at] === '\n' || text[at] === '\t' || text[at] === '\r') at++;
  return at;
}

function describe(text: string, { offset, expected }: Unexpected): string {
  const [found] = text.slice(offset);
  return `expected ${expected}, found ${found === undefined ? 'the end of the text' : JSON.stringify(found)}`;
}

/** Looks places up by halving: a file with thousands of mistakes has its lines counted once. */
function placesIn(text: string): (offset: number) => TextPlace {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return offset => {
    let [line, after] = [0, starts.length];
    while (after - line > 1) {
      const middle = (line + after) >> 1;
      if ((starts[middle] ?? 0) <= offset) line = middle;
      else after = middle;
    }
    return { line: line + 1, column: offset - (starts[line] ?? 0) + 1 };
  };
}
