// How do a client and a daemon that does not answer agree on which of them makes a call?
//
// A daemon that was stopped (SIGSTOP, a frozen cgroup) finds the requests that arrived in between when it continues. Their
// clients have already made the calls themselves, and nothing must be done twice. So both sides write before they read. The
// daemon notes the key of a call as begun, then checks whether the client has given it up. The client notes the key as given up,
// then checks whether the daemon has begun it. In either order, at most one of them makes the call.
//
// The daemon maps its part of the file into memory (mmap), so a note costs no system call. Clients append to the file.
import { closeSync, constants, openSync, readFileSync, writeSync } from 'node:fs';
import type { ProcessId } from '../files/process-id.ts';

/** Bytes of a key, which is a UUID. */
const KEY_BYTES = 36;

/** Calls that can be noted at the same time. Beyond that, every call counts as begun. */
export const SLOTS = 4_096;

/** The daemon's process id as JSON; the last byte tells whether there are more calls than slots. */
const HEADER_BYTES = 256;
const CROWDED_AT = HEADER_BYTES - 1;

/** Length of the daemon's part. */
export const TABLE_BYTES = HEADER_BYTES + SLOTS * KEY_BYTES;

/** What a client learns about its call. */
export interface CallFate {
  /** Whether the daemon may have begun the call. If false, it never will. */
  readonly begun: boolean;
  /** The daemon's process. */
  readonly daemon: ProcessId;
}

/** The daemon's part of a new file. */
export function emptyTable(daemon: ProcessId): Uint8Array {
  const table = new Uint8Array(TABLE_BYTES);
  new TextEncoder().encodeInto(JSON.stringify(daemon), table.subarray(0, CROWDED_AT));
  return table;
}

/** Writes a key into a slot; an empty key frees the slot. */
export function setSlot(table: Uint8Array, slot: number, key: string): void {
  const at = HEADER_BYTES + slot * KEY_BYTES;
  const bytes = table.subarray(at, at + KEY_BYTES);
  if (key === '') bytes.fill(0);
  else new TextEncoder().encodeInto(key, bytes);
}

/** Sets whether some begun calls have no slot. */
export function setCrowded(table: Uint8Array, crowded: boolean): void {
  table[CROWDED_AT] = crowded ? 1 : 0;
}

/**
 * Gives a call up on behalf of its client.
 * @returns undefined if the file is missing or cannot be read, which says nothing about the call
 */
export function giveUp(file: string, key: string): CallFate | undefined {
  try {
    // Without O_CREAT: a note that no daemon reads decides nothing.
    const fd = openSync(file, constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW);
    try {
      writeSync(fd, `${key}\n`);
    } finally {
      closeSync(fd);
    }
    const bytes = readFileSync(file);
    const daemon = daemonIn(bytes);
    const slots = bytes.subarray(HEADER_BYTES, TABLE_BYTES).toString('latin1');
    return { begun: bytes[CROWDED_AT] === 1 || slots.includes(key), daemon };
  } catch {
    return undefined;
  }
}

/** The daemon's process, from the beginning of a file. @throws SyntaxError if this is no such file */
export function daemonIn(bytes: Buffer): ProcessId {
  const header = bytes.subarray(0, CROWDED_AT);
  return JSON.parse(header.subarray(0, header.indexOf(0)).toString()) as ProcessId;
}

/** The keys that clients have given up, from the part that they append. */
export function givenUpIn(appended: string): string[] {
  return appended.split('\n').filter(Boolean);
}
