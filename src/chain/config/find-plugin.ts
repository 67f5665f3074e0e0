// Which executable does a plugin's type name, and is it one of our own?
//
// Ours are the Bun program that this process runs, under any name, and its front (plugins/front), which starts this very program.

import { type BigIntStats, lstatSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { CORE_NAME, workingDirectory } from '../../cni/directories.ts';
import { attempt, CniError, ErrorCode, invalidConfig } from '../../cni/errors.ts';
import { didYouMean } from '../../cni/json.ts';
import { namesIn } from '../../files/read-file.ts';
import { FRONT } from './front-program.ts';

/**
 * The first regular file of that name in the directories, following symbolic links. Whether it is executable is left to the
 * kernel. An empty directory is the current one, as in `CNI_PATH=a::b`.
 * @throws CniError 7 for an invalid name, 0 when there is no such file
 */
export function findPlugin(type: string, dirs: readonly string[]): string {
  return findPluginFile(type, dirs).path;
}

export interface PluginFile {
  readonly path: string;
  readonly stat: BigIntStats;
}

/** The same; what another program found, it alone has looked at. */
export type FoundPlugin = Pick<PluginFile, 'path'> & Partial<PluginFile>;

/** The same, with what was found of the file. @throws CniError as {@link findPlugin} */
export function findPluginFile(type: string, dirs: readonly string[]): PluginFile {
  if (type === '' || type.includes('/') || type.includes('\0')) {
    throw invalidConfig(
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
    const stat = attempt(() => lstatSync(path, { throwIfNoEntry: false }));
    if (stat === undefined) continue;
    const what = stat.isSymbolicLink() ? 'a symbolic link that leads to no file' : 'not a regular file';
    throw new CniError(ErrorCode.unknown, `Cannot find plugin "${type}": "${path}" is ${what}`);
  }
  const list = dirs.map(dir => JSON.stringify(dir)).join(', ');
  const near = didYouMean(
    type,
    reachable.flatMap(dir => namesIn(resolve(dir))),
  );
  throw new CniError(ErrorCode.unknown, `Cannot find plugin "${type}": no such file in ${list}${near}`);
}

/** Undefined where no file can be executed: an entry of CNI_PATH may be a file, and a type too long for a name. */
function statOf(path: string): BigIntStats | undefined {
  // Checking is cheaper than an error that is thrown and caught.
  return attempt(() => statSync(path, { bigint: true, throwIfNoEntry: false }));
}

/** The directories of a `CNI_PATH`. */
export function parsePluginDirs(path: string): string[] {
  return path === '' ? [] : path.split(':');
}

/**
 * True when executing the file would run the program of this process: it is the same file (device and inode), or a front of this
 * build with this program beside it. A front is recognised by its content, so copies count, and another program that was put
 * under one of our names never does. A file without a bit for execution is what no runtime can start, so it is not ours either.
 * @param stat of the file, if it was looked at just before
 */
export function isOwnExecutable(path: string, stat = statOf(path)): boolean {
  // A process never runs another program.
  own ??= identityOf(statOf('/proc/self/exe'));
  if (own === undefined || stat === undefined || (stat.mode & ANY_EXECUTE) === 0n) return false;
  return (
    identityOf(stat) === own || (isFrontFile(path, stat) && identityOf(statOf(coreBeside(path))) === own)
  );
}

const ANY_EXECUTE = 0o111n;
let own: string | undefined;

/** The same question for one run of a chain: each file is looked at once, however many plugins and segments name it. */
export function ownExecutables(): typeof isOwnExecutable {
  const known = new Map<string, boolean>();
  return (path, stat) => {
    const isOwn = known.get(path) ?? isOwnExecutable(path, stat);
    known.set(path, isOwn);
    return isOwn;
  };
}

interface PluginSearch {
  readonly pluginDirs: readonly string[];
  readonly find?: (type: string, dirs: readonly string[]) => string;
}

/** The executable of a plugin, found by the caller's `find` if there is one. @throws CniError 7 and 0 */
export function findExecutable(type: string, { find, pluginDirs }: PluginSearch): FoundPlugin {
  return find ? { path: find(type, pluginDirs) } : findPluginFile(type, pluginDirs);
}

/** Whether the file that a plugin's type names is ours; false without one, also if it vanishes while it is looked at. */
export function isOwnPlugin(
  type: string,
  where: PluginSearch,
  isOwn: typeof isOwnExecutable = isOwnExecutable,
): boolean {
  const answer = attempt(() => {
    const { path, stat } = findExecutable(type, where);
    return isOwn(path, stat);
  });
  return answer ?? false;
}

/** Whether the file is the front of this build, whatever stands beside it. */
export function isFront(path: string): boolean {
  const stat = statOf(path);
  return stat !== undefined && isFrontFile(path, stat);
}

function isFrontFile(path: string, stat: BigIntStats): boolean {
  if (FRONT === undefined || Number(stat.size) !== FRONT.bytes) return false;
  const version = `${stat.dev}:${stat.ino}:${stat.mtimeNs}:${stat.ctimeNs}`;
  const known = compared.get(version);
  if (known !== undefined) return known;
  const { digestOf, sha256 } = FRONT;
  // It may be a file that can only be executed, or was just removed.
  const isSame = attempt(() => digestOf(readFileSync(path))) === sha256;
  compared.set(version, isSame);
  return isSame;
}

/** Fronts that were read, by what changes with their content. A process meets a handful. */
const compared = new Map<string, boolean>();

/** The Bun program that a front executes: the one in the directory of the file itself, whatever link it was found by. */
export function coreBeside(path: string): string {
  return join(dirname(realpathSync(path)), CORE_NAME);
}

/**
 * The program that runs when the file is executed: the Bun program beside it for a front of any build, otherwise the file itself.
 * A front is a small file that contains the name of that program.
 */
export function programOf(path: string): string {
  const { size = 0n } = statOf(path) ?? {};
  const core = size > 0n && size <= MOST_OF_A_FRONT ? coreBeside(path) : path;
  const isCore = core !== path && statOf(core) !== undefined;
  return isCore && readFileSync(path).includes(CORE_NAME) ? core : path;
}

const MOST_OF_A_FRONT = 1 << 20;

function identityOf(stat: BigIntStats | undefined): string | undefined {
  return stat && `${stat.dev}:${stat.ino}`;
}
