// Which network is in a file, or where in it is the mistake?
import { readFileSync } from 'node:fs';
import {
  ConflistError,
  type ConflistParts,
  type PluginEntry,
  parseConflist,
  parsePluginEntry,
  upgradeToConflist,
} from '../../cni/conflist.ts';
import { defined } from '../../cni/defined.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject } from '../../cni/json.ts';
import { findSyntaxProblem, placeOf, type TextPlace } from '../../cni/json-place.ts';
import { findPluginFiles, unreadable } from './conf-files.ts';
import { type Conflist, completeNetwork, isSinglePlugin } from './conflist.ts';
import { findOddKeys } from './odd-keys.ts';

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

/** Parts of a list, and the file and text they came from. */
export interface FileParts extends ConflistParts {
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
export function readParts(file: string, onDiagnostic?: OnDiagnostic): FileParts {
  const text = readText(file);
  const object = parseFile(file, text);
  const single = isSinglePlugin(object);
  if (onDiagnostic) reportOddKeys(object, single ? 'plugin' : 'list', file, text, onDiagnostic);
  return atPlace(file, text, () => {
    if (!single) return { ...parseConflist(object), file, text, source: text };
    const list = upgradeToConflist(object);
    return { ...parseConflist(list), file, text, source: JSON.stringify(list) };
  });
}

/**
 * The whole network, including the plugins in separate files beside the list (SPEC 1.1.0
 * "loadOnlyInlinedPlugins").
 * @throws CniError as {@link readParts}, and 1 for a version that we do not speak
 */
export function completeParts(
  { file, text, source, ...parts }: FileParts,
  onDiagnostic?: OnDiagnostic,
): Conflist {
  const beside = parts.loadOnlyInlinedPlugins ? [] : loadPluginsBeside(file, parts.name, onDiagnostic);
  return atPlace(file, text, () => completeNetwork(parts, source, beside));
}

/** The diagnostic for an error thrown while reading a file. */
export function diagnose(file: string, error: unknown): Diagnostic {
  if (error instanceof PlacedError)
    return { severity: 'error', file: error.file, ...error.place, error: error as CniError };
  if (error instanceof CniError) return { severity: 'error', file, error };
  throw error;
}

/** The diagnostic of a skipped entry. */
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
    const cause = new CniError(ErrorCode.invalidConfig, problem);
    const error = new PlacedError(file, placeOf(text, path), problem, cause);
    onDiagnostic({ severity: 'warning', file, ...error.place, error });
  }
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

/** Runs a step of reading a file, and adds file, line and column to its error. */
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
      ...defined({ details: cause.details }),
    });
    this.file = file;
    this.place = place;
  }
}
