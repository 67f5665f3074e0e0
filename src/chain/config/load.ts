// Which networks are configured on this machine, and what is wrong with the files that hold none?

import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import {
  attempt,
  CniError,
  type CniErrorOptions,
  decodingFailure,
  ErrorCode,
  invalidConfig,
} from '../../cni/errors.ts';
import { objectIn } from '../../cni/invocation.ts';
import { defined, didYouMean, isObject, type JsonObject, memberOf, parseJson } from '../../cni/json.ts';
import { findSyntaxProblem, placeOf, type TextPlace } from '../../cni/json-place.ts';
import { isRuntimeKey } from '../../cni/schemas.ts';
import { ifThere, tryRead } from '../../files/read-file.ts';
import {
  type Conflist,
  ConflistError,
  type ConflistParts,
  completeNetwork,
  isSinglePlugin,
  LIFTED_KEYS,
  type PluginEntry,
  parseConflist,
  parsePluginEntry,
  upgradeToConflist,
} from './conflist.ts';

/** CniError 7: there is no network of that name where it was looked for. */
export class NetworkNotFound extends CniError {
  /** Where it was looked for, and what was found there instead. */
  readonly where: string;

  /**
   * @param network its name
   * @param where see the property
   */
  constructor(network: string, where: string, options: CniErrorOptions = {}) {
    super(ErrorCode.invalidConfig, `Cannot find network "${network}"${where}`, options);
    this.where = where;
  }
}

/** Called for an entry that is named like a configuration but is not a usable file, with the reason. */
export type OnSkipped = (path: string, problem: string) => void;

/**
 * Files of a directory that may each hold a network, in the order in which they are read: `.conflist`, then `.conf` and
 * `.json`, each sorted by the bytes of their names. A missing directory has none.
 * @throws CniError 5 when the directory cannot be read
 */
export function findConfFiles(dir: string, onSkipped?: OnSkipped): string[] {
  const files = listFiles(dir, ['.conflist', '.conf', '.json'], onSkipped);
  const isList = (path: string) => extensionOf(basename(path)) === '.conflist';
  return [...files.filter(isList), ...files.filter(path => !isList(path))];
}

/**
 * Files that each hold a further plugin of the list in `file`, in order: the `.conf` files of a directory beside it that has the
 * network's name.
 * @throws CniError 5 when the directory cannot be read
 */
export function findPluginFiles(file: string, network: string, onSkipped?: OnSkipped): string[] {
  const dir = join(dirname(file), network);
  // Most networks have no such directory, and a file of that name is not one.
  return isDirectory(dir) ? listFiles(dir, ['.conf'], onSkipped) : [];
}

/** A network's name may not be a possible directory name. */
function isDirectory(path: string): boolean {
  try {
    return ifThere(() => statSync(path, { throwIfNoEntry: false }))?.isDirectory() ?? false;
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

/** The error for a configuration that cannot be read from disk. */
export function unreadable(path: string, cause: unknown): CniError {
  const { message } = cause as Error;
  return new CniError(ErrorCode.ioFailure, `Cannot read network configuration "${path}": ${message}`, {
    cause,
  });
}

function listFiles(dir: string, extensions: readonly string[], onSkipped: OnSkipped | undefined): string[] {
  let entries: Dirent[];
  try {
    entries = readdirSync(dir, { withFileTypes: true });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw unreadable(dir, cause);
  }
  return entries
    .filter(entry => extensions.includes(extensionOf(entry.name)) && !entry.isDirectory())
    .filter(entry => entry.isFile() || isUsable(join(dir, entry.name), onSkipped))
    .map(entry => ({ path: join(dir, entry.name), bytes: Buffer.from(entry.name) }))
    .sort((a, b) => Buffer.compare(a.bytes, b.bytes))
    .map(({ path }) => path);
}

/** The reference fails to load a symlink to a directory, and reading a pipe would block. */
function isUsable(path: string, onSkipped: OnSkipped | undefined): boolean {
  const stat = attempt(() => statSync(path, { throwIfNoEntry: false }));
  // The reader reports a symlink that leads nowhere, to itself or below a file.
  if (stat === undefined || stat.isFile()) return true;
  onSkipped?.(path, stat.isDirectory() ? 'it is a symbolic link to a directory' : 'it is not a regular file');
  return false;
}

/** Also counts a file named just ".conflist", for which extname() returns no extension. */
function extensionOf(name: string): string {
  return extname(`x${name}`);
}

interface OddKey {
  readonly path: readonly (string | number)[];
  readonly problem: string;
}

/** Known keys of a list. They are case-sensitive, as in the reference; those of a plugin are not. */
const LIST_KEYS = [
  'name',
  'cniVersion',
  'cniVersions',
  'disableCheck',
  'disableGC',
  'loadOnlyInlinedPlugins',
  'plugins',
];

/**
 * Keys that differ from one of the list's only by letter case, and keys of plugins that only the runtime may set.
 * @param what `plugin` is a single plugin configuration that forms a network, `entry` one that belongs to a list
 */
export function findOddKeys(object: JsonObject, what: 'list' | 'plugin' | 'entry'): OddKey[] {
  if (what === 'entry') return findRuntimeKeys(object, []);
  if (what === 'plugin') return [...findNearMisses(object, LIFTED_KEYS), ...findRuntimeKeys(object, [])];
  const entries = Array.isArray(object.plugins) ? object.plugins : [];
  return [
    ...findNearMisses(object, LIST_KEYS),
    ...entries.flatMap((entry, i) => (isObject(entry) ? findRuntimeKeys(entry, ['plugins', i]) : [])),
  ];
}

function findNearMisses(object: JsonObject, known: readonly string[]): OddKey[] {
  return Object.keys(object).flatMap(key => {
    if (known.includes(key)) return [];
    const meant = known.find(one => one.toLowerCase() === key.toLowerCase());
    if (meant === undefined) return [];
    const problem = `key "${key}" is ignored: use "${meant}", keys are case-sensitive`;
    return [{ path: [key], problem }];
  });
}

function findRuntimeKeys(entry: JsonObject, path: readonly (string | number)[]): OddKey[] {
  return Object.keys(entry).flatMap(key => {
    const isWhole = isRuntimeKey(key);
    if (!isWhole && key !== 'runtimeConfig') return [];
    const outcome = isWhole ? 'dropped' : 'replaced when capabilities are passed';
    return [{ path: [...path, key], problem: `key "${key}" is set by the runtime: it is ${outcome}` }];
  });
}

/** A problem of a file: `error` when it is no network, `warning` when it is still usable, or was skipped. */
export interface Diagnostic {
  readonly severity: 'error' | 'warning';
  readonly file: string;
  /** Where in the file, counted from 1; absent when it could not be read at all. */
  readonly line?: number;
  readonly column?: number;
  readonly error: CniError;
}

/** Called for each problem that does not keep the network from being used. */
export type OnDiagnostic = (diagnostic: Diagnostic) => void;

interface FileParts extends ConflistParts {
  readonly file: string;
  /** The file's text, to which positions of mistakes refer. */
  readonly text: string;
  /** The list as text: the same, unless a single plugin configuration was upgraded. */
  readonly source: string;
}

/**
 * A file's own part of a network, whatever its extension: a list, or a single plugin configuration as a list of one.
 * @throws CniError 5 (not readable), 6 (not JSON), 7 (not a network), each naming file, line and column
 */
function readParts(file: string, onDiagnostic?: OnDiagnostic): FileParts {
  const text = readText(file);
  const object = parseFile(file, text);
  const single = isSinglePlugin(object);
  if (onDiagnostic) reportOddKeys(object, single ? 'plugin' : 'list', file, text, onDiagnostic);
  return atPlace(file, text, () => {
    if (!single) return { ...parseConflist(object), file, text, source: text };
    const list = upgradeToConflist(object);
    // Files beside it belong to lists only.
    const alone = { ...parseConflist(list), loadOnlyInlinedPlugins: true };
    return { ...alone, file, text, source: JSON.stringify(list) };
  });
}

/**
 * The whole network, including the plugins in separate files beside the list (SPEC 1.1.0
 * "loadOnlyInlinedPlugins").
 * @throws CniError as {@link readParts}, and 1 for a version that we do not speak
 */
function completeParts({ file, text, source, ...parts }: FileParts, onDiagnostic?: OnDiagnostic): Conflist {
  const beside = parts.loadOnlyInlinedPlugins ? [] : loadPluginsBeside(file, parts.name, onDiagnostic);
  return atPlace(file, text, () => completeNetwork(parts, source, beside));
}

export function diagnose(file: string, error: unknown): Diagnostic {
  if (error instanceof PlacedError)
    return { severity: 'error', file: error.file, ...error.place, error: error as CniError };
  if (error instanceof CniError) return { severity: 'error', file, error };
  throw error;
}

export function skipped(file: string, problem: string): Diagnostic {
  const text = `Cannot read network configuration "${file}": ${problem}; it was skipped`;
  return { severity: 'warning', file, error: new CniError(ErrorCode.ioFailure, text) };
}

function loadPluginsBeside(
  file: string,
  network: string,
  onDiagnostic: OnDiagnostic | undefined,
): PluginEntry[] {
  const onSkipped = (path: string, problem: string) => onDiagnostic?.(skipped(path, problem));
  return findPluginFiles(file, network, onSkipped).map(beside => {
    const text = readText(beside);
    const object = parseFile(beside, text);
    if (onDiagnostic) reportOddKeys(object, 'entry', beside, text, onDiagnostic);
    return atPlace(beside, text, () => parsePluginEntry(object));
  });
}

function reportOddKeys(
  object: JsonObject,
  what: 'list' | 'plugin' | 'entry',
  file: string,
  text: string,
  onDiagnostic: OnDiagnostic,
): void {
  for (const { path, problem } of findOddKeys(object, what)) {
    const cause = invalidConfig(problem);
    const error = new PlacedError(file, placeOf(text, path), problem, cause);
    onDiagnostic({ severity: 'warning', file, ...error.place, error });
  }
}

/** Text of a configuration. @throws CniError 5 */
export function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

function parseFile(file: string, text: string): JsonObject {
  const refusal = (place: TextPlace, problem: string, cause?: unknown) =>
    new PlacedError(file, place, problem, decodingFailure(problem, { cause }));
  const value = parseJson(text, (message, cause) => {
    const { line = 1, column = 1, problem = message } = findSyntaxProblem(text) ?? {};
    return refusal({ line, column }, problem, cause);
  });
  if (isObject(value)) return value;
  throw refusal(placeOf(text, []), 'expected a JSON object');
}

/** Runs a step of reading a file, and adds file, line and column to its error. */
function atPlace<T>(file: string, text: string, step: () => T): T {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof ConflistError)) throw error;
    throw new PlacedError(file, placeOf(text, error.path), error.message, error);
  }
}

class PlacedError extends CniError {
  readonly file: string;
  readonly place: TextPlace;

  constructor(file: string, place: TextPlace, problem: string, cause: CniError) {
    const where = `"${file}" line ${place.line}, column ${place.column}`;
    super(cause.code, `Cannot read network configuration ${where}: ${problem}`, {
      cause,
      ...defined({ details: cause.details }),
    });
    this.file = file;
    this.place = place;
  }
}

export interface LoadedNetworks {
  /** Lists before single plugin configurations, each sorted by file name; the first network of a name is kept. */
  readonly networks: readonly { readonly file: string; readonly list: Conflist }[];
  readonly diagnostics: readonly Diagnostic[];
}

/**
 * Reads every network of a directory: `.conflist` files, then `.conf` and `.json` files of a single plugin. A missing
 * directory counts as empty. An unusable file does not hide the others; it becomes a diagnostic.
 * @throws CniError 5 when the directory cannot be read
 */
export function listNetworks(dir: string): LoadedNetworks {
  const networks = new Map<string, { file: string; list: Conflist }>();
  const diagnostics: Diagnostic[] = [];
  const report: OnDiagnostic = diagnostic => diagnostics.push(diagnostic);
  for (const file of findConfFiles(dir, (path, problem) => report(skipped(path, problem)))) {
    try {
      const list = completeParts(readParts(file, report), report);
      const first = networks.get(list.name);
      if (first === undefined) networks.set(list.name, { file, list });
      else report(skipped(file, `network "${list.name}" is already defined in "${first.file}"`));
    } catch (error) {
      report(diagnose(file, error));
    }
  }
  return { networks: [...networks.values()], diagnostics };
}

/**
 * The network of a name. Broken files of other networks are ignored.
 * @param onDiagnostic called with problems of the network's own files
 * @throws CniError 7 when there is none, naming the unreadable files that might hold it; the error of the
 *   file itself when it is broken
 */
export function loadNetwork(dir: string, name: string, onDiagnostic?: OnDiagnostic): Conflist {
  const diagnostics: Diagnostic[] = [];
  const names: string[] = [];
  for (const file of findConfFiles(dir)) {
    try {
      const odd: Diagnostic[] = [];
      const parts = readParts(file, onDiagnostic && (one => odd.push(one)));
      names.push(parts.name);
      if (parts.name !== name) continue;
      for (const one of odd) onDiagnostic?.(one);
      return completeParts(parts, onDiagnostic);
    } catch (error) {
      // The name in a broken file, if it can be found.
      if (memberOf(objectIn(tryRead(file)) ?? {}, 'name') === name) throw error;
      diagnostics.push(diagnose(file, error));
    }
  }
  throw notFound(dir, name, names, diagnostics);
}

/**
 * The network in a file, whatever its extension: a list or a single plugin configuration.
 * @param onDiagnostic called with its problems
 * @throws CniError 5 (not readable), 6 (not JSON), 7 (not a network), 1 (version), each naming file, line and column
 */
export function loadFile(file: string, onDiagnostic?: OnDiagnostic): Conflist {
  return completeParts(readParts(file, onDiagnostic), onDiagnostic);
}

function notFound(
  dir: string,
  name: string,
  names: readonly string[],
  diagnostics: readonly Diagnostic[],
): CniError {
  const found = names.length
    ? `found ${[...new Set(names)].map(n => JSON.stringify(n)).join(', ')}${didYouMean(name, names)}`
    : 'found none';
  const broken = diagnostics.map(({ error }) => error.message).join('; ');
  return new NetworkNotFound(name, ` in "${dir}": ${found}`, {
    ...(broken ? { details: `not usable: ${broken}` } : {}),
    cause: diagnostics.length ? new AggregateError(diagnostics.map(({ error }) => error)) : undefined,
  });
}
