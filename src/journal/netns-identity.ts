// Is the network namespace behind a path still the one that it was?
import { statSync } from 'node:fs';

/**
 * Device and inode of the namespace that a path leads to; undefined when there is nothing. The kernel gives the inode
 * of a namespace that is gone to a later one, so that equal identities are likely, and different ones sure.
 */
export function findNetnsIdentity(path: string): string | undefined {
  if (path === '') return undefined;
  try {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev}:${ino}`;
  } catch {
    return undefined;
  }
}

/**
 * `same`: the path leads to the namespace that it led to then, or nobody knows where it led. `gone`: it leads nowhere. `other`: it
 * leads to something else.
 */
export function compareNetns(path: string, identity: string | undefined): 'same' | 'gone' | 'other' {
  if (identity === undefined) return 'same';
  const now = findNetnsIdentity(path);
  if (now === undefined) return 'gone';
  return now === identity ? 'same' : 'other';
}
