// Which file does a word mean that names a network namespace?
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { workingDirectory } from '../cni/directories.ts';
import { absolutePath } from './absolute-path.ts';

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
