// Which executable does a plugin's type name?
import { type BigIntStats, lstatSync, readdirSync, type Stats, statSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { workingDirectory } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { didYouMean } from '../../cni/json.ts';

/**
 * The first regular file of that name in the directories, following symbolic links. Whether it is executable is left to the
 * kernel. An empty directory is the current one, as in `CNI_PATH=a::b`.
 * @throws CniError 7 for an invalid name, 0 when there is no such file
 */
export function findPlugin(type: string, dirs: readonly string[]): string {
  return findPluginFile(type, dirs).path;
}

/** A file, and what was found of it. */
export interface PluginFile {
  readonly path: string;
  readonly stat: BigIntStats;
}

/** The same; what another program found, it alone has looked at. */
export type FoundPlugin = Pick<PluginFile, 'path'> & Partial<PluginFile>;

/** The same, with what was found of the file. @throws CniError as {@link findPlugin} */
export function findPluginFile(type: string, dirs: readonly string[]): PluginFile {
  if (type === '' || type.includes('/') || type.includes('\0')) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot find plugin ${JSON.stringify(type)}: a plugin type is a file name, without "/"`,
    );
  }
  if (!dirs.length) {
    throw new CniError(
      ErrorCode.unknown,
      `Cannot find plugin "${type}": no plugin directories are configured; set CNI_PATH`,
    );
  }
  // In a deleted working directory, relative entries cannot be resolved.
  const reachable = workingDirectory() === undefined ? dirs.filter(isAbsolute) : dirs;
  for (const dir of reachable) {
    const path = resolve(dir, type);
    const stat = statOf(path);
    if (stat?.isFile()) return { path, stat };
  }
  for (const dir of reachable) {
    const path = resolve(dir, type);
    const stat = findEntry(path);
    if (stat === undefined) continue;
    const what = stat.isSymbolicLink() ? 'a symbolic link that leads to no file' : 'not a regular file';
    throw new CniError(ErrorCode.unknown, `Cannot find plugin "${type}": "${path}" is ${what}`);
  }
  const list = dirs.map(dir => JSON.stringify(dir)).join(', ');
  const near = didYouMean(type, reachable.flatMap(namesIn));
  throw new CniError(ErrorCode.unknown, `Cannot find plugin "${type}": no such file in ${list}${near}`);
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(resolve(dir));
  } catch {
    return [];
  }
}

function findEntry(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** Undefined where no file can be executed: an entry of CNI_PATH may be a file, and a type too long for a name. */
export function statOf(path: string): BigIntStats | undefined {
  try {
    // Checking is cheaper than an error that is thrown and caught.
    return statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** The directories of a `CNI_PATH`. */
export function parsePluginDirs(path: string): string[] {
  return path === '' ? [] : path.split(':');
}
