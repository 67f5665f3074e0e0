// How do processes take turns with a lock on a file, and which one holds it?

import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  type Stats,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { LOCK_DEADLINE_MS } from '../wait.ts';
import { Errno } from './errno.ts';
import { errno, libc, SystemError } from './libc.ts';

/**
 * Describes the process that holds the flock(2) of a file: `process 4711 (host-local)`. Undefined when the lock is free
 * again, or when this process cannot see the holder, as in another PID namespace.
 */
export function findFlockHolder({ dev, ino }: Pick<Stats, 'dev' | 'ino'>): string | undefined {
  // `1: FLOCK  ADVISORY  WRITE 4711 fd:01:12345 0 EOF`; a line with an arrow is a waiting process.
  const held = /^\d+: FLOCK +\S+ +WRITE +(-?\d+) +([\da-f]+:[\da-f]+):(\d+) /gm;
  const rows = Array.from((tryRead('/proc/locks') ?? '').matchAll(held), ([, pid, device, inode]) => {
    return { pid: Number(pid), device, ino: Number(inode) };
  }).filter(lock => lock.ino === ino);
  // Overlay file systems report another device here than stat does.
  const lock = rows.find(row => row.device === renderDevice(dev)) ?? rows[0];
  if (lock === undefined || lock.pid <= 0) return undefined;
  const name = tryRead(`/proc/${lock.pid}/comm`)?.trim();
  return name === undefined ? undefined : `process ${lock.pid} (${name})`;
}

/** Whether a process waits for the flock(2) of a file, as far as this one sees. */
export function isFlockAwaited({ ino }: Pick<Stats, 'ino'>): boolean {
  return new RegExp(`^\\d+: -> FLOCK .*:${ino} `, 'm').test(tryRead('/proc/locks') ?? '');
}

/** linux/kdev_t.h, as glibc packs it into st_dev. */
function renderDevice(dev: number): string {
  const bits = BigInt(dev);
  const major = ((bits >> 8n) & 0xfffn) | ((bits >> 32n) & 0xfffff000n);
  const minor = (bits & 0xffn) | ((bits >> 12n) & 0xffffff00n);
  return [major, minor].map(part => part.toString(16).padStart(2, '0')).join(':');
}

/** As `files/` has it, which this folder may not import. */
function tryRead(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** Another process did not release a lock in time; what fails otherwise at a lock stays so. */
export class LockHeld extends Error {}

/** sys/file.h */
const LOCK_EX = 2;
const LOCK_NB = 4;

/** How long a lock is waited for, and how a missing lock file is created. Any user that can open a file can hold its lock, so only root may open ours. */
interface LockFile {
  /** Longest wait for another holder. */
  readonly deadlineMs?: number | undefined;
  /** Mode of the file; 0600 unless given. */
  readonly mode?: number;
  /**
   * Mode of missing parent directories; without it, they must exist. A directory of 0700 is the lock itself while it has no room
   * for the file.
   */
  readonly directoryMode?: number;
  /** The file is removed with the lock. */
  readonly transient?: boolean;
}

/**
 * Runs a function while holding the exclusive flock(2) of a file, creating the file if missing. The lock is released with the
 * descriptor, so a process that dies never leaves one behind.
 * @throws LockHeld naming the file and the holder on a timeout, Error when the file cannot be locked
 */
export function withFlock<T>(path: string, work: () => T, file: LockFile = {}): T {
  for (;;) {
    const fd = openLock(path, file);
    try {
      lock(fd, path, file.deadlineMs ?? LOCK_DEADLINE_MS);
      // Removed by the holder that this one waited for, or by a person who makes room: others would take another one.
      if (isReplaced(fd, path)) continue;
      try {
        return work();
      } finally {
        if (file.transient) removeHeld(path);
      }
    } finally {
      closeSync(fd);
    }
  }
}

/** A file on a disk that has become read-only stays, and serves the next one. */
function removeHeld(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EROFS') throw error;
  }
}

/** A directory that stands in for a file that has no room is never removed. */
function isReplaced(fd: number, path: string): boolean {
  const held = fstatSync(fd);
  return held.isFile() && statSync(path, { throwIfNoEntry: false })?.ino !== held.ino;
}

/**
 * Takes the exclusive flock(2) of a file and keeps it, if necessary for the life of this process.
 * @returns a function that releases it; undefined when another process has it
 */
export function holdFlock(path: string, file: LockFile = {}): (() => void) | undefined {
  const fd = openLock(path, file);
  if (libc().flock(fd, LOCK_EX | LOCK_NB) === 0) return () => closeSync(fd);
  const problem = errno();
  closeSync(fd);
  if (problem === Errno.EAGAIN) return undefined;
  throw new SystemError(`lock "${path}"`, problem);
}

/** Others may write to the directory: a symbolic link would make root create or open its target, and a pipe would block. */
const NO_DETOUR = constants.O_NOFOLLOW | constants.O_NONBLOCK;
const WRITING = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | NO_DETOUR;
const READING = constants.O_RDONLY | NO_DETOUR;
const NO_ROOM = ['EROFS', 'ENOSPC', 'EDQUOT'];

function openLock(path: string, { mode = 0o600, directoryMode }: LockFile): number {
  try {
    return openFile(path, WRITING, mode);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    // Where no file can be created, an existing one can still be locked, and so can a directory that is root's alone.
    if (NO_ROOM.includes(code)) {
      const place = existsSync(path) || directoryMode !== 0o700 ? path : dirname(path);
      return openFile(place, READING, mode);
    }
    if (code !== 'ENOENT' || directoryMode === undefined) throw error;
    mkdirSync(dirname(path), { recursive: true, mode: directoryMode });
    return openFile(path, WRITING, mode);
  }
}

function openFile(path: string, flags: number, mode: number): number {
  try {
    return openSync(path, flags, mode);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOOP') throw error;
    throw new Error(`Cannot lock "${path}": it is a symbolic link; remove it`, { cause: error });
  }
}

const LONGEST_NAP_MS = 10;

function lock(fd: number, path: string, deadlineMs: number): void {
  const giveUpAt = performance.now() + deadlineMs;
  // Poll, because a blocking flock cannot time out. The pauses are short, to keep a burst of containers moving.
  for (let napMs = 0.2; ; napMs *= 2) {
    if (libc().flock(fd, LOCK_EX | LOCK_NB) === 0) return;
    const problem = errno();
    if (problem !== Errno.EAGAIN && problem !== Errno.EINTR) throw new SystemError(`lock "${path}"`, problem);
    if (performance.now() > giveUpAt) {
      const holder = findFlockHolder(fstatSync(fd)) ?? 'another process';
      throw new LockHeld(
        `Cannot lock "${path}": ${holder} holds it and did not release it within ${deadlineMs / 1000} s`,
      );
    }
    Bun.sleepSync(Math.min(LONGEST_NAP_MS, napMs));
  }
}
