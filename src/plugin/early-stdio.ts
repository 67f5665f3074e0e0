// How are the standard streams used in a process that has not loaded any modules yet?
//
// Uses only Bun's built-ins: a client of the daemon ends before `node:fs` would have been loaded (see daemon/client.ts).

/** A network configuration is kilobytes; no runtime sends more than this. */
export const REQUEST_LIMIT_BYTES = 16 << 20;

/**
 * Standard input, to its end or until it is too long.
 * @returns undefined when it cannot be read: the next attempt reports why
 */
export async function readInput(): Promise<Uint8Array | undefined> {
  const chunks: Uint8Array[] = [];
  let total = 0;
  try {
    for await (const chunk of Bun.stdin.stream()) {
      chunks.push(chunk);
      total += chunk.length;
      if (total > REQUEST_LIMIT_BYTES) break;
    }
  } catch {
    return undefined;
  }
  return Buffer.concat(chunks);
}

/** The bytes as text; undefined if there are too many. */
export function textOf(bytes: Uint8Array): string | undefined {
  if (bytes.length > REQUEST_LIMIT_BYTES) return undefined;
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}

/** Writes a whole text, however slow the reader. */
export async function writeOut(stream: typeof Bun.stdout, text: string): Promise<void> {
  const sink = stream.writer();
  sink.write(text);
  await sink.end();
}
