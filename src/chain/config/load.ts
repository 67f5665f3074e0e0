// Which networks are configured on this machine, and what is wrong with the files that hold none?
import { readFileSync } from 'node:fs';
import type { CniError } from '../../cni/errors.ts';
import { isObject, memberOf } from '../../cni/json.ts';
import { didYouMean } from '../../cni/suggest.ts';
import { findConfFiles } from './conf-files.ts';
import type { Conflist } from './conflist.ts';
import {
  completeParts,
  type Diagnostic,
  diagnose,
  type OnDiagnostic,
  readParts,
  skipped,
} from './network-file.ts';
import { NetworkNotFound } from './network-not-found.ts';

/** What a directory of network configurations holds. */
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
      if (nameIn(file) === name) throw error;
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

/** The name in a broken file, if it can be found. */
function nameIn(file: string): unknown {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return isObject(value) ? memberOf(value, 'name') : undefined;
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
    ? `found ${[...new Set(names)].map(n => JSON.stringify(n)).join(', ')}${didYouMean(name, names)}`
    : 'found none';
  const broken = diagnostics.map(({ error }) => error.message).join('; ');
  return new NetworkNotFound(name, ` in "${dir}": ${found}`, {
    ...(broken ? { details: `not usable: ${broken}` } : {}),
    cause: diagnostics.length ? new AggregateError(diagnostics.map(({ error }) => error)) : undefined,
  });
}
