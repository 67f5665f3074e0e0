// Was a lease written since the machine booted?
//
// A lease survives a crash of the machine, but what it was for does not: no network namespace survives. A file's time cannot
// tell, because clocks jump. So each lease carries a note that names a boot in which it existed, as an extended attribute.
// The attribute belongs to the file itself: if another program, such as the reference, deletes the lease and writes one of
// the same name and content, the new file has no note. Foreign leases get their note when we first see them. A lease with
// the note of another boot of this machine therefore existed before this boot began. One without a note may be new.

import { hostname } from 'node:os';
import { bootId } from '../files/boot-id.ts';
import { tryRead } from '../files/read-file.ts';
import { findXattr, setXattr, xattrMatcher } from '../sys/xattr.ts';

const NOTE = 'user.catena.boot';

/** `this`: noted since the machine booted. `earlier`: noted before. `unknown`: not noted yet, or noted on another machine. */
export type BootOfLease = 'this' | 'earlier' | 'unknown';

/** A boot of a machine. */
export interface Boot {
  readonly bootId: string;
  /** A directory shared by several machines holds live leases that carry the notes of other boots. */
  readonly machine: string;
}

let current: Boot | undefined;

/** The current boot. */
export function thisBoot(): Boot {
  current ??= {
    bootId: bootId(),
    machine: tryRead('/etc/machine-id')?.trim() || hostname(),
  };
  return current;
}

/** When the file was last noted. */
export function bootOf(path: string): BootOfLease {
  const [bootId, machine] = findXattr(path, NOTE)?.split(' ') ?? [];
  const now = thisBoot();
  // Without a boot id from the kernel, no lease is attributed to an earlier boot.
  if (!bootId || !machine || !now.bootId || machine !== now.machine) return 'unknown';
  return bootId === now.bootId ? 'this' : 'earlier';
}

/** Returns a function that says for many files of a directory, by name, whether they were noted since the machine booted. */
export function noteReader(dir: string): (name: string) => boolean {
  const { bootId, machine } = thisBoot();
  if (bootId === '') return () => false;
  return xattrMatcher(dir, NOTE, `${bootId} ${machine}`);
}

/**
 * Notes that the file exists in this boot.
 * @returns false on a file system that cannot store the note, or when the boot is unknown; such a lease is never
 *   attributed to an earlier boot
 */
export function noteBoot(path: string, { bootId, machine }: Boot = thisBoot()): boolean {
  return bootId !== '' && setXattr(path, NOTE, `${bootId} ${machine}`);
}
