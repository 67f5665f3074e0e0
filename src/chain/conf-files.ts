// Which files of a directory may hold a network, or a further link of one?
import { type Dirent, readdirSync, statSync } from 'node:fs';
import { dirname, extname, join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';

/** Told of an entry that has the name of a configuration and is no file, and why. */
export type OnSkipped = (path: string, problem: string) => void;

/**
 * Files of a directory that may each hold a network, in the order in which they are read: `.conflist`, then `.conf` and
 * `.json`, each sorted by the bytes of their names. A missing directory has none.
 * @throws CniError 5 when the directory cannot be read
 */
export function findConfFiles(dir: string, onSkipped?: OnSkipped): string[] {
  return [...listFiles(dir, ['.conflist'], onSkipped), ...listFiles(dir, ['.conf', '.json'], onSkipped)];
}

/**
 * Files that each hold a further link of the list in `file`, in their order: the `.conf` files in the directory beside
 * it that is named like the network.
 * @throws CniError 5 when the directory cannot be read
 */
export function findPluginFiles(file: string, network: string, onSkipped?: OnSkipped): string[] {
  const dir = join(dirname(file), network);
  // Most networks have none, and a file that is named like one is no directory of links.
  return isDirectory(dir) ? listFiles(dir, ['.conf'], onSkipped) : [];
}

/** A network may have a name that no directory can have. */
function isDirectory(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENAMETOOLONG') return false;
    throw unreadable(path, cause);
  }
}

/** A configuration that cannot be read from disk. */
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

/** A link to a directory breaks the reference's load, and a pipe would keep the reader waiting. */
function isUsable(path: string, onSkipped: OnSkipped | undefined): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  // A dangling link is left to the reader, who says so.
  if (stat === undefined || stat.isFile()) return true;
  onSkipped?.(path, stat.isDirectory() ? 'it links to a directory' : 'it is no regular file');
  return false;
}

/** A file named just ".conflist" counts, which extname() says has no extension. */
function extensionOf(name: string): string {
  return extname(`x${name}`);
}
