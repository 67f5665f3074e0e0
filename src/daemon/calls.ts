// Which of client and daemon makes a call when the other one is silent or gone?
//
// README.md, "A silent daemon": both sides write to a file beside the socket before they read it, so at most one of them makes the call.
//
// The daemon maps its part of the file into memory (mmap), so a note costs no system call. Clients append to the file.
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { attempt } from '../cni/errors.ts';
import {
  endFrozen,
  isFrozen,
  type ProcessId,
  readProcessStat,
  thisProcess,
  wantedCpuMs,
} from '../files/process-stat.ts';
import { holdFlock } from '../sys/flock.ts';
import { pause } from '../wait.ts';
import { BUSY_MS, callsFileOf, callsFilesOf } from './protocol.ts';

/** Bytes of a key, which is a UUID. */
const KEY_BYTES = 36;

/** Calls that can be noted at the same time. Beyond that, every call counts as begun. */
export const SLOTS = 4_096;

/** The daemon's process id as JSON; the last byte tells whether there are more calls than slots. */
const HEADER_BYTES = 256;
const CROWDED_AT = HEADER_BYTES - 1;

/** Length of the daemon's part. */
const TABLE_BYTES = HEADER_BYTES + SLOTS * KEY_BYTES;

export class BegunCalls {
  readonly #file: string;
  readonly #fd: number;
  readonly #table: Uint8Array;
  readonly #release: () => void;
  readonly #free = Array.from({ length: SLOTS }, (_, i) => SLOTS - 1 - i);
  readonly #slots = new Map<string, number | undefined>();
  readonly #givenUp = new Set<string>();
  #crowding = 0;
  #read = TABLE_BYTES;

  /**
   * Creates the file of a socket, and removes those of daemons that have ended.
   * @param stat of the socket for calls, which was just created
   */
  constructor(socket: string, stat: { ino: number; mtimeMs: number }) {
    removeAbandoned(socket);
    this.#file = callsFileOf(socket, stat);
    rmSync(this.#file, { force: true });
    this.#fd = openSync(this.#file, 'wx+', 0o600);
    try {
      // A table that the disk holds only in part would lose calls: better none, and the next attempt.
      const table = new Uint8Array(TABLE_BYTES);
      new TextEncoder().encodeInto(JSON.stringify(thisProcess()), table.subarray(0, CROWDED_AT));
      writeFileSync(this.#fd, table);
    } catch (error) {
      closeSync(this.#fd);
      rmSync(this.#file, { force: true });
      throw error;
    }
    this.#table = Bun.mmap(this.#file).subarray(0, TABLE_BYTES);
    // The lock tells other daemons that clean up that the file is in use.
    this.#release = holdFlock(this.#file) ?? (() => {});
  }

  /** Notes that a call begins. @returns false if its client has given it up: the daemon must not make it then */
  begin(key: string): boolean {
    if (this.#slots.has(key)) return true;
    const slot = this.#free.pop();
    this.#slots.set(key, slot);
    if (slot !== undefined) new TextEncoder().encodeInto(key, this.#bytesOf(slot));
    else this.#crowd(1);
    // What cannot be read may say that it was given up.
    if (attempt(() => this.#isGivenUp(key)) === false) return true;
    this.end(key);
    return false;
  }

  /** Notes that the call was answered. */
  end(key: string): void {
    if (!this.#slots.has(key)) return;
    const slot = this.#slots.get(key);
    this.#slots.delete(key);
    if (slot === undefined) this.#crowd(-1);
    else {
      this.#bytesOf(slot).fill(0);
      this.#free.push(slot);
    }
  }

  /** Whether the file still exists, so that clients can find it. */
  isThere(): boolean {
    return existsSync(this.#file);
  }

  /** Removes the file: no more calls come. */
  close(): void {
    rmSync(this.#file, { force: true });
    this.#release();
    closeSync(this.#fd);
  }

  #bytesOf(slot: number): Uint8Array {
    const at = HEADER_BYTES + slot * KEY_BYTES;
    return this.#table.subarray(at, at + KEY_BYTES);
  }

  #crowd(by: number): void {
    this.#crowding += by;
    this.#table[CROWDED_AT] = this.#crowding > 0 ? 1 : 0;
  }

  #isGivenUp(key: string): boolean {
    const { size } = fstatSync(this.#fd);
    if (size > this.#read) {
      const bytes = Buffer.alloc(size - this.#read);
      readSync(this.#fd, bytes, 0, bytes.length, this.#read);
      this.#read = size;
      for (const one of bytes.toString().split('\n')) if (one) this.#givenUp.add(one);
    }
    return this.#givenUp.delete(key);
  }
}

/**
 * Its runtime was told then that the call failed, and may have called DEL since. Requests like that wait for a daemon that was stopped.
 * That a client has gone is heard right after its request, in the same turn of the loop; this waits for the end of the turn.
 * @param signal aborted when it is heard that the client has gone
 */
export async function hasGone(signal: AbortSignal): Promise<boolean> {
  await new Promise(resolve => setImmediate(resolve));
  return signal.aborted;
}

/**
 * `declined`: the daemon has not begun the call and never will. `lost`: it may have begun the call and will not continue it.
 * `wait`: it may be working on it.
 */
type CallState = 'declined' | 'lost' | 'wait';

/** A daemon that runs but is silent for this long hangs, unless it uses a processor, or waits for one, and the node is busy. */
const STANDSTILL_MS = 10_000;
const LOOK_MS = 250;

/**
 * Decides about a call whose daemon is silent. A daemon that has begun the call and is stopped is killed, together with its
 * workers: nothing else prevents it from continuing the call later, while the client makes it itself.
 * @param file the calls file of the socket
 * @param silentMs how long it has been silent
 */
export async function judgeSilence(file: string, key: string, silentMs: number): Promise<CallState> {
  const daemon = daemonOf(file);
  if (daemon === undefined || !(await hangs(daemon, silentMs))) return 'wait';
  const mayHaveBegun = giveUp(file, key);
  if (mayHaveBegun !== true) return mayHaveBegun === false ? 'declined' : 'wait';
  return (await endFrozen(daemon)) ? 'lost' : 'wait';
}

async function hangs(daemon: ProcessId, silentMs: number): Promise<boolean> {
  if (silentMs < STANDSTILL_MS) return isFrozen(daemon);
  return silentMs >= BUSY_MS || !(await isAtWork(daemon));
}

async function isAtWork({ pid }: ProcessId): Promise<boolean> {
  const before = wantedCpuMs(pid);
  await pause(LOOK_MS);
  return readProcessStat(pid)?.state === 'R' || wantedCpuMs(pid) > before;
}

/** Decides about a call whose connection to the daemon broke. */
export function judgeBreak(file: string, key: string): CallState {
  return giveUp(file, key) === false ? 'declined' : 'lost';
}

/**
 * Gives a call up on behalf of its client.
 * @returns whether the daemon may have begun it; if false, it never will; undefined if the file is missing or cannot be read, which says nothing about the call
 */
export function giveUp(file: string, key: string): boolean | undefined {
  try {
    // Without O_CREAT: a note that no daemon reads decides nothing.
    const fd = openSync(file, constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW);
    try {
      writeSync(fd, `${key}\n`);
    } finally {
      closeSync(fd);
    }
    const bytes = readFileSync(file);
    if (bytes.length < TABLE_BYTES) return undefined;
    const slots = bytes.subarray(HEADER_BYTES, TABLE_BYTES).toString('latin1');
    return bytes[CROWDED_AT] === 1 || slots.includes(key);
  } catch {
    return undefined;
  }
}

/** The daemon's process, from the beginning of its calls file; undefined if this is none. */
export function daemonOf(file: string): ProcessId | undefined {
  return attempt(() => {
    const header = readFileSync(file).subarray(0, CROWDED_AT);
    return JSON.parse(header.subarray(0, header.indexOf(0)).toString()) as ProcessId;
  });
}

/** Removes files that no daemon has locked. A living daemon holds the lock, even from another PID namespace. */
function removeAbandoned(socket: string): void {
  const start = callsFilesOf(basename(socket));
  for (const name of readdirSync(dirname(socket)).filter(one => one.startsWith(start))) {
    const file = join(dirname(socket), name);
    const release = holdFlock(file);
    if (release === undefined) continue;
    rmSync(file, { force: true });
    release();
  }
}
