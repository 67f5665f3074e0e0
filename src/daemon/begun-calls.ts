// Which calls has this daemon begun, and which had their clients already given up? (see calls-file.ts)
import {
  closeSync,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { thisProcess } from '../files/process-id.ts';
import { holdFlock } from '../sys/flock.ts';
import { emptyTable, givenUpIn, SLOTS, setCrowded, setSlot, TABLE_BYTES } from './calls-file.ts';
import { callsFileOf, callsFilesOf } from './protocol.ts';

/** The calls file of one listening socket. */
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
      writeFileSync(this.#fd, emptyTable(thisProcess()));
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
    if (slot !== undefined) setSlot(this.#table, slot, key);
    else this.#crowd(1);
    if (!this.#isGivenUp(key)) return true;
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
      setSlot(this.#table, slot, '');
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

  #crowd(by: number): void {
    this.#crowding += by;
    setCrowded(this.#table, this.#crowding > 0);
  }

  #isGivenUp(key: string): boolean {
    const { size } = fstatSync(this.#fd);
    if (size > this.#read) {
      const bytes = Buffer.alloc(size - this.#read);
      readSync(this.#fd, bytes, 0, bytes.length, this.#read);
      this.#read = size;
      for (const one of givenUpIn(bytes.toString())) this.#givenUp.add(one);
    }
    return this.#givenUp.delete(key);
  }
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
