// Does a path still refer to the same network namespace?
import { statSync } from 'node:fs';
import { findNetnsCookie } from '../sys/netns-cookie.ts';

/** What a record keeps of a namespace, to recognise it. */
export interface NetnsIdentity {
  /** Device and inode; undefined when the path did not exist. */
  readonly netnsIdentity: string | undefined;
  /**
   * The kernel's cookie of the namespace, which no later one gets in the same boot. Absent in records of earlier releases and
   * if the kernel did not report it.
   */
  readonly netnsCookie?: string;
}

/** The identity that distinguishes the namespace at a path from every other one of this boot. */
export function identifyNetns(path: string): NetnsIdentity {
  const netnsIdentity = findNetnsIdentity(path);
  const netnsCookie = netnsIdentity === undefined ? undefined : findNetnsCookie(path);
  return { netnsIdentity, ...(netnsCookie === undefined ? {} : { netnsCookie }) };
}

/**
 * Device and inode of the namespace at a path; undefined if there is none. The kernel reuses the inode number
 * of a deleted namespace, so different identities are certain, and equal ones only likely.
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
 * `same`: the path refers to the same namespace, or the earlier one is not known. `gone`: it does not exist. `other`: it
 * refers to a different one.
 * @param then what was known of the namespace; the caller has to ensure that it is of this boot
 */
export function compareNetns(path: string, then: NetnsIdentity): 'same' | 'gone' | 'other' {
  const { netnsIdentity, netnsCookie } = then;
  if (netnsIdentity === undefined) return 'same';
  const now = findNetnsIdentity(path);
  if (now === undefined) return 'gone';
  if (now !== netnsIdentity) return 'other';
  const cookie = netnsCookie === undefined ? undefined : findNetnsCookie(path);
  // If the kernel does not report the cookie now, device and inode have to be enough.
  return cookie === undefined || cookie === netnsCookie ? 'same' : 'other';
}

/** The cookie of the namespace that this process works in, as a record has it. A process stays in one. */
export function hostCookie(): { readonly hostCookie?: string } {
  own ??= findNetnsCookie('/proc/thread-self/ns/net');
  return own === undefined ? {} : { hostCookie: own };
}

let own: string | undefined;
