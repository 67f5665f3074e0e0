// Which networks are configured on this machine, and what is wrong with the files that are not one?
import { type Dirent, readdirSync, readFileSync } from 'node:fs';
import { dirname, extname, join } from 'node:path';
import {
  ConflistError,
  type ConflistParts,
  type PluginEntry,
  parseConflist,
  parsePluginEntry,
  upgradeToConflist,
} from '../cni/conflist.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { findSyntaxProblem, placeOf, type TextPlace } from '../cni/json-place.ts';
import { type Conflist, completeNetwork, isSinglePlugin } from './conflist.ts';

/** Why one file is not a network. */
export interface Diagnostic {
  readonly file: string;
  /** Where in the file, counted from 1; absent when it could not be read at all. */
  readonly line?: number;
  readonly column?: number;
  readonly error: CniError;
}

/** What a directory of network configurations holds. */
export interface LoadedNetworks {
  /** Lists before single plugin configurations, each sorted by file name; the first of a name is kept. */
  readonly networks: readonly { readonly file: string; readonly list: Conflist }[];
  readonly diagnostics: readonly Diagnostic[];
}

/**
 * Reads every network of a directory: `.conflist` files, then `.conf` and `.json` files of a single plugin. A missing
 * directory is an empty one. A file that cannot be used never hides the others; it becomes a diagnostic.
 */
export function loadNetworks(dir: string): LoadedNetworks {
  const networks = new Map<string, { file: string; list: Conflist }>();
  const diagnostics: Diagnostic[] = [];
  for (const file of findConfFiles(dir)) {
    try {
      const list = loadFile(file);
      if (!networks.has(list.name)) networks.set(list.name, { file, list });
    } catch (error) {
      diagnostics.push(diagnose(file, error));
    }
  }
  return { networks: [...networks.values()], diagnostics };
}

/**
 * The network of a name. Broken files of other networks are passed over.
 * @throws CniError 7 when there is none, naming the files that could not be read and might be it; the error of the
 *   file itself when it is broken
 */
export function loadNetwork(dir: string, name: string): Conflist {
  const diagnostics: Diagnostic[] = [];
  const names: string[] = [];
  for (const file of findConfFiles(dir)) {
    try {
      const parts = readParts(file);
      names.push(parts.name);
      if (parts.name === name) return complete(parts);
    } catch (error) {
      if (nameIn(file) === name) throw error;
      diagnostics.push(diagnose(file, error));
    }
  }
  throw notFound(dir, name, names, diagnostics);
}

/**
 * The network in a file, whatever its extension: a list or a single plugin configuration.
 * @throws CniError 5 (not readable), 6 (not JSON), 7 (not a network), 1 (version), each naming file, line and column
 */
export function loadFile(file: string): Conflist {
  return complete(readParts(file));
}

/** Parts of a list together with where they came from. */
interface FileParts extends ConflistParts {
  readonly file: string;
  /** The file's text, in which mistakes have their place. */
  readonly text: string;
  /** The list as text: the same, unless a single plugin configuration was upgraded. */
  readonly source: string;
}

function readParts(file: string): FileParts {
  const text = readText(file);
  const object = parseFile(file, text);
  return atPlace(file, text, () => {
    if (!isSinglePlugin(object)) return { ...parseConflist(object), file, text, source: text };
    const list = upgradeToConflist(object);
    return { ...parseConflist(list), file, text, source: JSON.stringify(list) };
  });
}

function complete({ file, text, source, ...parts }: FileParts): Conflist {
  const beside = parts.loadOnlyInlinedPlugins ? [] : loadPluginsBeside(file, parts.name);
  return atPlace(file, text, () => completeNetwork(parts, source, beside));
}

/** SPEC 1.1.0 "loadOnlyInlinedPlugins": links may stand in files of their own in a directory named like the network. */
function loadPluginsBeside(file: string, network: string): PluginEntry[] {
  return findPluginFiles(file, network).map(beside => {
    const text = readText(beside);
    const object = parseFile(beside, text);
    return atPlace(beside, text, () => parsePluginEntry(object));
  });
}

/** Files of a directory that may each hold a network, in the order in which they are read; a missing one has none. */
export function findConfFiles(dir: string): string[] {
  return [...listFiles(dir, ['.conflist']), ...listFiles(dir, ['.conf', '.json'])];
}

/** Files that each hold a further link of the list in `file`, in their order. */
export function findPluginFiles(file: string, network: string): string[] {
  return listFiles(join(dirname(file), network), ['.conf']);
}

function listFiles(dir: string, extensions: readonly string[]): string[] {
  let entries: Dirent[];
  try {
    entries = readdirSync(dir, { withFileTypes: true });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw unreadable(dir, cause);
  }
  return entries
    .filter(entry => !entry.isDirectory() && extensions.includes(extensionOf(entry.name)))
    .map(entry => join(dir, entry.name))
    .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

/** A file named just ".conflist" counts, which extname() says has no extension. */
function extensionOf(name: string): string {
  return extname(`x${name}`);
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

function parseFile(file: string, text: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const { line = 1, column = 1, problem = (cause as Error).message } = findSyntaxProblem(text) ?? {};
    throw new PlacedError(
      file,
      { line, column },
      problem,
      new CniError(ErrorCode.decodingFailure, problem, { cause }),
    );
  }
  if (isObject(value)) return value;
  const problem = 'expected a JSON object';
  throw new PlacedError(file, placeOf(text, []), problem, new CniError(ErrorCode.decodingFailure, problem));
}

/** Runs a step of reading a file; its complaint gets file, line and column. */
function atPlace<T>(file: string, text: string, step: () => T): T {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof ConflistError)) throw error;
    throw new PlacedError(file, placeOf(text, error.path), error.message, error);
  }
}

/** An error at a place in a file. */
class PlacedError extends CniError {
  readonly file: string;
  readonly place: TextPlace;

  constructor(file: string, place: TextPlace, problem: string, cause: CniError) {
    const where = `"${file}" line ${place.line}, column ${place.column}`;
    super(cause.code, `Cannot read network configuration ${where}: ${problem}`, {
      cause,
      ...(cause.details === undefined ? {} : { details: cause.details }),
    });
    this.file = file;
    this.place = place;
  }
}

function diagnose(file: string, error: unknown): Diagnostic {
  if (error instanceof PlacedError) return { file: error.file, ...error.place, error };
  if (error instanceof CniError) return { file, error };
  throw error;
}

/** The name a broken file claims, as far as it can be made out. */
function nameIn(file: string): unknown {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return isObject(value) ? value.name : undefined;
  } catch {
    return undefined;
  }
}

function notFound(
  dir: string,
  name: string,
  names: readonly string[],
  diagnostics: readonly Diagnostic[],
): CniError {
  const found = names.length
    ? `found ${[...new Set(names)].map(n => JSON.stringify(n)).join(', ')}`
    : 'found none';
  const broken = diagnostics.map(({ error }) => error.message).join('; ');
  return new CniError(ErrorCode.invalidConfig, `Cannot find network "${name}" in "${dir}": ${found}`, {
    ...(broken ? { details: `not usable: ${broken}` } : {}),
    cause: diagnostics.length ? new AggregateError(diagnostics.map(({ error }) => error)) : undefined,
  });
}

function unreadable(path: string, cause: unknown): CniError {
  return new CniError(
    ErrorCode.ioFailure,
    `Cannot read network configuration "${path}": ${(cause as Error).message}`,
    {
      cause,
    },
  );
}
