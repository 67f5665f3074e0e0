// Which files of a directory may hold a network, or a further plugin of one?
import { type Dirent, readdirSync, statSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { CniError, ErrorCode } from '../../cni/errors.ts';

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
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENAMETOOLONG') return false;
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
  const stat = statSync(path, { throwIfNoEntry: false });
  // The reader reports a dangling symlink.
  if (stat === undefined || stat.isFile()) return true;
  onSkipped?.(path, stat.isDirectory() ? 'it is a symbolic link to a directory' : 'it is not a regular file');
  return false;
}

/** Also counts a file named just ".conflist", for which extname() returns no extension. */
function extensionOf(name: string): string {
  return extname(`x${name}`);
}
