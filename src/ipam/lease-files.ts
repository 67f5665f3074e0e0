// Where are the files of leases, how are they written so that a crash never leaves half a lease, and what do they say?

import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { findContainerIdProblem } from '../cni/attachment.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { bootId } from '../files/process-stat.ts';
import { nameNewFile, putFile, removeFile, writeOverLeftover } from '../files/put-file.ts';
import { fileFailure, namesIfThere, tryRead, UNREADABLE } from '../files/read-file.ts';
import { isIp } from '../net/ip.ts';
import { findXattr, setXattr, xattrMatcher } from '../sys/xattr.ts';

/** Owner of a lease. Leases from before interface names were stored have no `ifname`. */
export interface Owner {
  readonly containerId: string;
  readonly ifname?: string;
}

/** Content of a lease file, byte for byte as the reference writes it: no newline at the end. */
export function renderOwner({ containerId, ifname }: Owner): string {
  return ifname === undefined ? containerId.trim() : `${containerId.trim()}\r\n${ifname}`;
}

/** The owner in a lease file, or undefined for an empty or unknown format. */
export function parseOwner(text: string): Owner | undefined {
  const [containerId = '', ifname, ...more] = text.trim().split('\r\n');
  if (more.length || findContainerIdProblem(containerId) !== undefined) return undefined;
  return ifname === undefined ? { containerId } : { containerId, ifname };
}

export function sameOwner(a: Owner, b: Owner): boolean {
  return a.containerId === b.containerId && a.ifname === b.ifname;
}

/** The attachment in human-readable form, for messages. */
export function renderAttachment({ containerId, ifname }: Owner): string {
  return `container "${containerId}", interface "${ifname}"`;
}

/** The default directory of leases; shared with the reference. */
export const DEFAULT_DATA_DIR = '/var/lib/cni/networks';

/** Where a configuration has the leases of its network, also of an invalid one: `dataDir` counts only if it is a text. */
export function leaseDirOf({ ipam }: JsonObject, network: string): string {
  const dataDir = isObject(ipam) && typeof ipam.dataDir === 'string' ? ipam.dataDir : '';
  return join(dataDir || DEFAULT_DATA_DIR, network);
}

// Was a lease written since the machine booted?
//
// A lease survives a crash of the machine, but what it was for does not: no network namespace survives. A file's time cannot
// tell, because clocks jump. So each lease carries a note that names a boot in which it existed, as an extended attribute.
// The attribute belongs to the file itself: if another program, such as the reference, deletes the lease and writes one of
// the same name and content, the new file has no note. Foreign leases get their note when we first see them. A lease with
// the note of another boot of this machine therefore existed before this boot began. One without a note may be new.

const NOTE = 'user.catena.boot';

/** `this`: noted since the machine booted. `earlier`: noted before. `unknown`: not noted yet, or noted on another machine. */
export type BootOfLease = 'this' | 'earlier' | 'unknown';

interface Boot {
  readonly bootId: string;
  /** A directory shared by several machines holds live leases that carry the notes of other boots. */
  readonly machine: string;
}

let current: Boot | undefined;

export function thisBoot(): Boot {
  current ??= { bootId: bootId(), machine: tryRead('/etc/machine-id')?.trim() || hostname() };
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

/** File systems that several machines may have mounted at once: linux/magic.h, and the sources of Ceph, OCFS2, Lustre and GPFS. */
const SHARED_FILE_SYSTEMS: ReadonlySet<number> = new Set([
  0x6969, // NFS
  0xff534d42, // CIFS
  0xfe534d42, // SMB2
  0x01021997, // 9P
  0x65735546, // FUSE, such as GlusterFS and virtiofs
  0x00c36400, // Ceph
  0x01161970, // GFS2
  0x7461636f, // OCFS2
  0x0bd00bd0, // Lustre
  0x47504653, // GPFS
]);

/** Whether other machines may lease from the directory, too. */
export function isShareable(dir: string): boolean {
  return SHARED_FILE_SYSTEMS.has(statfsSync(dir).type >>> 0);
}

/** Temporary file of a lease, which is then hard-linked to its address. */
const UNFINISHED_LEASE = '.catena-lease';
const UNFINISHED_POINTER = '.catena-pointer';

/** A file with the name of a lease may be a pipe without a writer, which would block. */
const AT_ONCE = constants.O_RDONLY | constants.O_NONBLOCK;

/** The leased addresses in canonical text; files with other names are not leases. Needs no lock. */
export function listLeases(dir: string): string[] {
  return readdirSync(dir).filter(isLease);
}

/** The same, but a directory that is missing, or that this user may not read, has none. @throws CniError 5 */
export function tryListLeases(dir: string): string[] {
  return namesIfThere(dir, 'leases', UNREADABLE).filter(isLease);
}

export function isLease(name: string): boolean {
  return /^[\da-f:][\da-f.:]*$/.test(name) && isIp(name);
}

/** Content of a lease; undefined when it does not exist or is a directory. */
export function readLease(dir: string, address: string): string | undefined {
  try {
    return readFileSync(join(dir, address), { encoding: 'utf8', flag: AT_ONCE });
  } catch (cause) {
    const { code = '' } = cause as { code?: string };
    if (['ENOENT', 'EISDIR'].includes(code)) return undefined;
    throw cause;
  }
}

/**
 * Writes a lease atomically, with the note of this boot.
 * @throws CniError 5, Error when the address is already leased
 */
export function createLease(dir: string, address: string, text: string): void {
  const [unfinished, path] = [join(dir, UNFINISHED_LEASE), join(dir, address)];
  try {
    // A file left by a crash may share its inode with a lease.
    writeOverLeftover(unfinished, text);
    try {
      noteBoot(unfinished);
      nameNewFile(unfinished, path);
    } finally {
      discard(unfinished);
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw fileFailure('write lease', path, cause);
    throw new Error(`Cannot reserve ${address} in "${dir}": another process has taken it since`, { cause });
  }
}

/**
 * Deletes a lease; a missing one is ignored.
 * @throws CniError 5
 */
export function removeLease(dir: string, address: string): void {
  const path = join(dir, address);
  try {
    unlinkSync(path);
  } catch {
    // Reports why the lease cannot be deleted, if it exists.
    removeFile(path, 'lease');
  }
}

/** Text of the address last handed out from a range set. */
export function readPointer(dir: string, setIndex: number): string | undefined {
  return readLease(dir, pointerOf(setIndex));
}

/**
 * Sets that text; undefined deletes the file.
 *
 * The file is written in place. The reference does the same, and even truncates it first. Renaming a new file over this one
 * makes ext4 start writing to disk at once, which takes longer than everything else that an ADD does to files. The pointer is
 * only a hint: if it is truncated, mixed from two addresses or empty, the search for a free address starts elsewhere.
 */
export function writePointer(dir: string, setIndex: number, text: string | undefined): void {
  const path = join(dir, pointerOf(setIndex));
  if (text === undefined) {
    rmSync(path, { force: true });
    return;
  }
  if (!rewrite(path, text)) putFile(path, text, { unfinished: join(dir, UNFINISHED_POINTER) });
}

/**
 * Overwrites an existing file that has no other name: the target of a symbolic or hard link belongs to another program.
 * @returns false when there is no such file, or it cannot be written
 */
function rewrite(path: string, text: string): boolean {
  const bytes = Buffer.from(text);
  let fd: number | undefined;
  try {
    fd = openSync(path, constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stat = fstatSync(fd);
    if (!stat.isFile() || stat.nlink !== 1) return false;
    if (writeSync(fd, bytes, 0, bytes.length, 0) !== bytes.length) return false;
    // Never truncate to zero first: ext4 treats that as a replacement as well.
    if (stat.size > bytes.length) ftruncateSync(fd, bytes.length);
    return true;
  } catch {
    return false;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** On failure the file remains: the writer of the next lease deletes it, or reports why it cannot. */
function discard(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // The lease itself is complete.
  }
}

function pointerOf(setIndex: number): string {
  return `last_reserved_ip.${setIndex}`;
}
