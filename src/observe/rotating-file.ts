// How does a file of lines stay bounded, survive a full disk, and leave room for logrotate?
//
// winston has a file transport of its own. If the disk is full, it reports nothing, accepts no further line, and blocks every
// other destination of the same logger. So lines are appended here synchronously, and a failure affects only its own line.
import { closeSync, fstatSync, openSync, readSync, renameSync, rmSync, statSync, writeSync } from 'node:fs';
import { inDirectory } from '../files/read-file.ts';
import { withFlock } from '../sys/flock.ts';

export interface RotationLimits {
  readonly maxBytes: number;
  /** The current file and its predecessors; `<path>.1` is the youngest predecessor. */
  readonly maxFiles: number;
}

export interface RotatingFile {
  /**
   * Appends one line, including its line break; reopens the file if it was moved.
   * @throws Error of the file system; the next line is a new attempt
   */
  append(line: Uint8Array): void;
  close(): void;
}

/** Opens nothing before the first line. The file has mode 0600; a missing directory is created. */
export function openRotatingFile(path: string, { maxBytes, maxFiles }: RotationLimits): RotatingFile {
  let fd: number | undefined;
  let size = 0;
  let torn = false;
  const close = (): void => {
    if (fd !== undefined) closeSync(fd);
    fd = undefined;
  };
  const open = (): number => {
    fd = inDirectory(path, () => openSync(path, 'a+', 0o600));
    ({ size } = fstatSync(fd));
    torn = size > 0 && lastByteOf(fd, size) !== LINE_END[0];
    return fd;
  };
  return {
    append(line) {
      if (fd !== undefined && !isSame(fd, path)) close();
      let at = fd ?? open();
      if (size > 0 && size + line.length > maxBytes) {
        // Another process may have found the same file full, and its rotation may be over.
        withFlock(`${path}.lock`, () => isSame(at, path) && shift(path, maxFiles), { transient: true });
        close();
        at = open();
      }
      const bytes = torn ? Buffer.concat([LINE_END, line]) : line;
      const written = writeSync(at, bytes);
      size += written;
      torn = written < bytes.length;
      if (torn) throw new Error(`Cannot write a whole line to "${path}": the disk is full`);
    },
    close,
  };
}

const LINE_END = Buffer.from('\n');

/** A process that wrote to a full disk may have left the begin of a line, to which the next one would be joined. */
function lastByteOf(fd: number, size: number): number | undefined {
  const last = Buffer.alloc(1);
  readSync(fd, last, 0, 1, size - 1);
  return last[0];
}

function isSame(fd: number, path: string): boolean {
  const named = statSync(path, { throwIfNoEntry: false });
  const { dev, ino } = fstatSync(fd);
  return named?.ino === ino && named.dev === dev;
}

/** `log.2` becomes `log.3`, `log.1` becomes `log.2`, `log` becomes `log.1`; the oldest is deleted. */
function shift(path: string, maxFiles: number): void {
  const nameOf = (age: number): string => (age === 0 ? path : `${path}.${age}`);
  rmSync(nameOf(maxFiles - 1), { force: true });
  for (let age = maxFiles - 2; age >= 0; age -= 1) {
    if (statSync(nameOf(age), { throwIfNoEntry: false })) renameSync(nameOf(age), nameOf(age + 1));
  }
}
