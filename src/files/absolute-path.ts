// What is the absolute path of a path that may be relative?
import { existsSync } from 'node:fs';
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

/** Where `ip netns add` creates namespaces. */
const NETNS_DIR = '/run/netns';

/**
 * The path of a network namespace. A bare name is that of a namespace that `ip netns add` made, also after it was deleted, so
 * that DEL derives the same container id as ADD did; a file of that name in the working directory comes first.
 * @param given a path or a bare name; empty for no namespace
 * @throws CniError 5 for a relative path if the working directory cannot be reached
 */
export function namespacePath(given: string, cwd = workingDirectory()): string {
  if (given === '') return '';
  if (given.includes('/')) return absolutePath(given, cwd);
  const beside = cwd === undefined ? undefined : resolve(cwd, given);
  return beside !== undefined && existsSync(beside) ? beside : `${NETNS_DIR}/${given}`;
}
