// How does a program that we start get pipes for its standard streams?
//
// Bun and Node would give it sockets, which cannot be opened by a name: a shell script that reads /dev/stdin, or writes to /dev/stdout or
// /dev/stderr, fails then (ENXIO). Node has no call for pipes, so there it stays so.

import { closeSync, writeSync } from 'node:fs';
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { pause } from '../wait.ts';
import { findInLibc } from './libc-names.ts';

/** asm-generic/fcntl.h, linux/fcntl.h */
const O_NONBLOCK = 0o4000;
const O_CLOEXEC = 0o2000000;
const F_SETFL = 4;

const functions = findInLibc({
  pipe2: { args: ['ptr', 'i32'], returns: 'i32' },
  fcntl: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
});

/** Pipes to a program that is about to start, which have to be destroyed. */
export interface Pipes {
  /** What it gets as standard input, output and error. */
  readonly theirs: readonly [number, number, number];
  /** Starts it, and closes its ends here: a pipe ends once no process has its other end. */
  start<T>(program: () => T): T;
  /** The program need not read: what it leaves is lost. */
  readonly stdin: { end(text: string): void; destroy(): void };
  readonly stdout: Readable;
  readonly stderr: Readable;
  destroy(): void;
}

/**
 * Undefined under Node. Of four pipes, the last one keeps descriptors for the start itself: without, Bun reports that in an event that execa
 * does not hear.
 * @throws Error for want of descriptors
 */
export function openPipes(): Pipes | undefined {
  if (functions === undefined) return undefined;
  const all = [1, 0, 0, 0].flatMap(our => openPipe(our) ?? []);
  const [input, output, error, spare] = all;
  if (!input || !output || !error || !spare) {
    for (const { ours, theirs } of all) close(ours, theirs);
    throw new Error('no descriptors are left (EMFILE or ENFILE)');
  }
  const theirs = [input.theirs, output.theirs, error.theirs] as const;
  const streams = {
    stdin: writerOf(input.ours),
    stdout: readerOf(output.ours),
    stderr: readerOf(error.ours),
  };
  const destroy = () => {
    for (const stream of Object.values(streams)) stream.destroy();
  };
  return {
    ...streams,
    theirs,
    start(program) {
      close(spare.ours, spare.theirs);
      try {
        return program();
      } catch (thrown) {
        destroy();
        throw thrown;
      } finally {
        close(...theirs);
      }
    },
    destroy,
  };
}

function close(...fds: readonly number[]): void {
  for (const fd of fds) closeSync(fd);
}

/** @param our which end is ours, and does not block: 0 is for reading, 1 for writing */
function openPipe(our: number): { readonly ours: number; readonly theirs: number } | undefined {
  const ends = new Int32Array(2);
  if (functions?.pipe2(functions.ptr(ends), O_CLOEXEC) !== 0) return undefined;
  const [ours = -1, theirs = -1] = [ends[our], ends[1 - our]];
  functions.fcntl(ours, F_SETFL, O_NONBLOCK);
  return { ours, theirs };
}

/** How often a pipe that is full is tried again: the program reads at its own speed. */
const FULL_MS = 1;

function writerOf(fd: number): Pipes['stdin'] {
  let isOpen = true;
  const destroy = () => {
    if (isOpen) closeSync(fd);
    isOpen = false;
  };
  const write = async (bytes: Uint8Array) => {
    for (let at = 0; isOpen && at < bytes.length; ) {
      try {
        at += writeSync(fd, bytes, at);
      } catch (thrown) {
        if ((thrown as NodeJS.ErrnoException).code !== 'EAGAIN') break;
        await pause(FULL_MS);
      }
    }
    destroy();
  };
  return { end: text => void write(new TextEncoder().encode(text)), destroy };
}

function readerOf(fd: number): Readable {
  const stream = Readable.fromWeb(Bun.file(fd).stream() as unknown as ReadableStream);
  // The reader has a descriptor of its own.
  stream.once('close', () => closeSync(fd));
  return stream;
}
