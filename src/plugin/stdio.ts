// How are requests read and replies written without the process streams?
//
// Loaded by every start, so it imports nothing of ours.
import { readSync, writeSync } from 'node:fs';

/** A network configuration is kilobytes; no runtime sends more than this. */
export const REQUEST_LIMIT_BYTES = 16 << 20;

let kept: Uint8Array | undefined;

/**
 * Everything on standard input. `process.stdin` alone would cost as much as the rest of a plugin's start.
 * @throws Error that says why it could not be read
 */
export function readStdin(): string {
  kept ??= readToEnd();
  if (kept.length > REQUEST_LIMIT_BYTES)
    throw new Error(
      `Cannot read network configuration: standard input is longer than ${REQUEST_LIMIT_BYTES} bytes`,
    );
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(kept);
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
