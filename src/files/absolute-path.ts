// What is the absolute path of a path that may be relative?
import { isAbsolute, resolve } from 'node:path';
import { workingDirectory } from '../cni/directories.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';

/**
 * The absolute path. `resolve()` alone is not enough if the working directory was deleted: Bun then starts from the
 * directory of the executable.
 * @param from where a relative path starts; the working directory unless given
 * @throws CniError 5 for a relative path without a directory to start from
 */
export function absolutePath(path: string, from = workingDirectory()): string {
  if (from !== undefined) return resolve(from, path);
  if (isAbsolute(path)) return resolve(path);
  throw new CniError(
    ErrorCode.ioFailure,
    `Cannot find "${path}": it is a relative path, and the working directory was deleted or cannot be reached; change to another directory, or give the path from "/"`,
  );
}
