// How are the files of a lease directory written, so that no crash leaves half of one?
import { closeSync, linkSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileFailure } from '../files/failure.ts';
import { putFile, writeNewFile } from '../files/put-file.ts';
import { removeFile } from '../files/remove-file.ts';
import { isIp } from '../net/ip.ts';
import { noteBoot } from './boot-note.ts';

/** A lease is written here and then linked to its address. */
const UNFINISHED_LEASE = '.catena-lease';
const UNFINISHED_POINTER = '.catena-pointer';

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
    return readFileSync(join(dir, address), 'utf8');
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
    // A leftover of a crash may share its inode with a lease: it is taken away, never written to.
    rmSync(unfinished, { force: true });
    closeSync(writeNewFile(unfinished, text));
    noteBoot(unfinished);
    linkSync(unfinished, path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw fileFailure('write lease', path, cause);
    throw new Error(`Cannot reserve ${address} in "${dir}": somebody else has taken it meanwhile`, { cause });
  } finally {
    removeFile(unfinished);
  }
}

/** Text of the address last handed out from a set. */
export function readPointer(dir: string, setIndex: number): string | undefined {
  return readLease(dir, pointerOf(setIndex));
}

/** Sets that text; undefined takes the file away. */
export function writePointer(dir: string, setIndex: number, text: string | undefined): void {
  const path = join(dir, pointerOf(setIndex));
  if (text === undefined) {
    rmSync(path, { force: true });
    return;
  }
  putFile(path, text, { unfinished: join(dir, UNFINISHED_POINTER) });
}

function pointerOf(setIndex: number): string {
  return `last_reserved_ip.${setIndex}`;
}
