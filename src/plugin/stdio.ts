// How do requests come in and replies go out without the process streams?
//
// It is part of what every start loads, so it imports nothing of ours.
import { readSync, writeSync } from 'node:fs';

/** A network configuration is kilobytes; whoever sends more than this is not a runtime. */
const REQUEST_LIMIT_BYTES = 16 << 20;

let kept: { readonly text: string } | { readonly error: unknown } | undefined;

/**
 * Everything on standard input, however often it is asked for. `process.stdin` alone would cost as much as the rest of a
 * link's start.
 * @throws Error that says what kept it from being read
 */
export function readStdin(): string {
  if (kept === undefined) {
    try {
      kept = { text: readToEnd() };
    } catch (error) {
      kept = { error };
    }
  }
  if ('error' in kept) throw kept.error;
  return kept.text;
}

function readToEnd(): string {
  const chunks: Uint8Array[] = [];
  let total = 0;
  for (;;) {
    const chunk = new Uint8Array(1 << 16);
    const length = readChunk(chunk);
    if (length === 0) break;
    total += length;
    if (total > REQUEST_LIMIT_BYTES) {
      throw new Error(
        `Cannot read network configuration: standard input is longer than ${REQUEST_LIMIT_BYTES} bytes`,
      );
    }
    chunks.push(chunk.subarray(0, length));
  }
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(chunks));
}

/** Writes a whole text to a descriptor, however small the pipe. */
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
