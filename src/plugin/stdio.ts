// How are requests read and replies written without the process streams?
//
// Loaded by every start, so it imports almost nothing of ours.
import { readSync, writeSync } from 'node:fs';
import { REQUEST_LIMIT_BYTES, textOf } from './early-stdio.ts';

let kept: Uint8Array | undefined;

/** Keeps what has already been read of standard input. */
export function keepStdin(bytes: Uint8Array): void {
  kept = bytes;
}

/**
 * Everything on standard input. `process.stdin` alone would cost as much as the rest of a plugin's start.
 * @throws Error that says why it could not be read
 */
export function readStdin(): string {
  kept ??= readToEnd();
  const text = textOf(kept);
  if (text !== undefined) return text;
  throw new Error(
    `Cannot read network configuration: standard input is longer than ${REQUEST_LIMIT_BYTES} bytes`,
  );
}

function readToEnd(): Uint8Array {
  const chunks: Uint8Array[] = [];
  for (let total = 0; total <= REQUEST_LIMIT_BYTES; ) {
    const chunk = new Uint8Array(1 << 16);
    const length = readChunk(chunk);
    if (length === 0) break;
    total += length;
    chunks.push(chunk.subarray(0, length));
  }
  return Buffer.concat(chunks);
}

/** Writes a whole text to a descriptor, however small the pipe is. */
export function writeAll(fd: 1 | 2, text: string): void {
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (thrown) {
      if ((thrown as { code?: string }).code !== 'EAGAIN') throw thrown;
      Bun.sleepSync(1);
    }
  }
}

/** Waits for the next bytes on standard input. @returns how many came; 0 at its end */
export function readChunk(chunk: Uint8Array): number {
  for (;;) {
    try {
      return readSync(0, chunk);
    } catch (thrown) {
      const { code } = thrown as { code?: string };
      if (code === 'EOF') return 0;
      if (code !== 'EAGAIN' && code !== 'EINTR') {
        throw new Error(`Cannot read network configuration: ${String(code)}`, { cause: thrown });
      }
      Bun.sleepSync(1);
    }
  }
}
