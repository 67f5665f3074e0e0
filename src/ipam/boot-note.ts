// Was a lease written since the machine was last started?
//
// A lease outlives a crash of the machine, and what it was for does not: no network namespace survives. The time of a file
// cannot tell, because clocks jump. So each lease carries a note of a boot in which it was there, as an extended
// attribute: that belongs to the file itself, and whoever deletes the lease and writes another one of the same name and
// content, as the reference does, has a file without a note. Leases of others get theirs when they are met. A lease with
// the note of another boot of this machine was therefore there before this boot began. One without a note may be new.

import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { readBootId } from '../files/boot-id.ts';
import { findXattr, setXattr, xattrMatcher } from '../sys/xattr.ts';

const NOTE = 'user.catena.boot';

/** `this`: noted since the machine was started. `earlier`: before. `unknown`: not noted yet, or on another machine. */
export type BootOfLease = 'this' | 'earlier' | 'unknown';

/** A boot of a machine. */
export interface Boot {
  readonly bootId: string;
  /** Directories that machines share hold leases of other boots that are alive. */
  readonly machine: string;
}

let current: Boot | undefined;

/** The boot that we are in. */
export function thisBoot(): Boot {
  current ??= {
    bootId: readBootId(),
    machine: read('/etc/machine-id') || hostname(),
  };
  return current;
}

/** When the file at the path was last noted. */
export function bootOf(path: string): BootOfLease {
  const [bootId, machine] = findXattr(path, NOTE)?.split(' ') ?? [];
  const now = thisBoot();
  // A kernel that does not say which boot this is says of no lease that it is an earlier one's.
  if (!bootId || !machine || !now.bootId || machine !== now.machine) return 'unknown';
  return bootId === now.bootId ? 'this' : 'earlier';
}

/** Tells of many files of a directory, by name, whether they were noted since the machine was started. */
export function noteReader(dir: string): (name: string) => boolean {
  const { bootId, machine } = thisBoot();
  if (bootId === '') return () => false;
  return xattrMatcher(dir, NOTE, `${bootId} ${machine}`);
}

/**
 * Notes that the file is there in this boot.
 * @returns false on a file system that cannot hold the note: such a lease is never taken for one of an earlier boot; the
 *   same where nobody knows which boot this is
 */
export function noteBoot(path: string, { bootId, machine }: Boot = thisBoot()): boolean {
  return bootId !== '' && setXattr(path, NOTE, `${bootId} ${machine}`);
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
