// Which executable does a plugin's type name?
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';

/**
 * The first regular file of that name in the directories, symbolic links followed. Whether it may be executed is left
 * to the kernel to say. An empty directory is the current one, as in `CNI_PATH=a::b`.
 * @throws CniError 7 for a name that is not one, 0 when there is no such file
 */
export function findPlugin(type: string, dirs: readonly string[]): string {
  if (type === '' || type.includes('/') || type.includes('\0')) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot find plugin ${JSON.stringify(type)}: a plugin type is the name of a file, without "/"`,
    );
  }
  if (!dirs.length) {
    throw new CniError(
      ErrorCode.unknown,
      `Cannot find plugin "${type}": no directories to look in; set CNI_PATH`,
    );
  }
  for (const dir of dirs) {
    const path = resolve(dir, type);
    if (isFile(path)) return path;
  }
  const list = dirs.map(dir => JSON.stringify(dir)).join(', ');
  throw new CniError(ErrorCode.unknown, `Cannot find plugin "${type}": no such file in ${list}`);
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The directories of a `CNI_PATH`. */
export function parsePluginDirs(path: string): string[] {
  return path === '' ? [] : path.split(':');
}

/**
 * True when the file is the executable this process runs: one of our own links, whatever its name (design: "ours is
 * decided by device and inode").
 */
export function isOwnExecutable(path: string): boolean {
  const own = statSync('/proc/self/exe', { bigint: true, throwIfNoEntry: false });
  const other = statSync(path, { bigint: true, throwIfNoEntry: false });
  return own !== undefined && other !== undefined && own.dev === other.dev && own.ino === other.ino;
}
