// How are the files of a lease directory written, so that no crash leaves half a lease?
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  linkSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileFailure } from '../files/failure.ts';
import { putFile, writeOverLeftover } from '../files/put-file.ts';
import { removeFile } from '../files/remove-file.ts';
import { isIp } from '../net/ip.ts';
import { noteBoot } from './boot-note.ts';

/** A lease is written here and then linked to its address. */
const UNFINISHED_LEASE = '.catena-lease';
const UNFINISHED_POINTER = '.catena-pointer';

/** What lies in the place of a lease may be a pipe that nobody writes to. */
const AT_ONCE = constants.O_RDONLY | constants.O_NONBLOCK;

/** Addresses that have a lease, in canonical text; files of other names are no leases. No lock needed. */
export function listLeases(dir: string): string[] {
  return listFiles(dir).filter(isLease);
}

/** Names of all files in the directory, leases and others. */
export function listFiles(dir: string): string[] {
  return readdirSync(dir);
}

/** Whether a file of that name is a lease. */
export function isLease(name: string): boolean {
  return /^[\da-f:][\da-f.:]*$/.test(name) && isIp(name);
}

/** Content of a lease; undefined when there is none, or a directory in its place. */
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
 * Writes a lease, complete or not at all, with the note of this boot.
 * @throws CniError 5, Error when the address has one
 */
export function createLease(dir: string, address: string, text: string): void {
  const [unfinished, path] = [join(dir, UNFINISHED_LEASE), join(dir, address)];
  try {
    // A leftover of a crash may share its inode with a lease.
    closeSync(writeOverLeftover(unfinished, text));
    try {
      noteBoot(unfinished);
      linkSync(unfinished, path);
    } finally {
      discard(unfinished);
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw fileFailure('write lease', path, cause);
    throw new Error(`Cannot reserve ${address} in "${dir}": somebody else has taken it meanwhile`, { cause });
  }
}

/**
 * Takes a lease away; an absent one is fine.
 * @throws CniError 5
 */
export function removeLease(dir: string, address: string): void {
  const path = join(dir, address);
  try {
    unlinkSync(path);
  } catch {
    // It says what keeps the lease there, if there is one.
    removeFile(path, 'lease');
  }
}

/** Text of the address last handed out from a set. */
export function readPointer(dir: string, setIndex: number): string | undefined {
  return readLease(dir, pointerOf(setIndex));
}

/**
 * Sets that text; undefined takes the file away.
 *
 * It is written in place, as the reference does it, which even empties it first: a new file renamed over this one makes
 * ext4 start writing to the disk at once, and that takes longer than all else that an ADD does to files. The pointer is
 * a hint. With half a text, or one of two addresses, or nothing in it, the search for a free address starts elsewhere.
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
 * Writes into a file that is there, and is known under this name only: what a link leads to is somebody else's.
 * @returns false when there is none such, or it cannot be written
 */
function rewrite(path: string, text: string): boolean {
  const bytes = Buffer.from(text);
  let fd: number | undefined;
  try {
    fd = openSync(path, constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stat = fstatSync(fd);
    if (!stat.isFile() || stat.nlink !== 1) return false;
    if (writeSync(fd, bytes, 0, bytes.length, 0) !== bytes.length) return false;
    // Never to nothing first: ext4 takes that for a replacement as well.
    if (stat.size > bytes.length) ftruncateSync(fd, bytes.length);
    return true;
  } catch {
    return false;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** Whoever writes the next lease takes it away, or says why that cannot be done. */
function discard(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // The lease itself is as it should be.
  }
}

function pointerOf(setIndex: number): string {
  return `last_reserved_ip.${setIndex}`;
}
