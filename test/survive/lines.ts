// How is what another program prints heard line by line?

/** Tells of each line as it comes, until there are no more; settles then. */
export async function readLines(
  stream: ReadableStream<Uint8Array>,
  hear: (line: string) => void,
): Promise<void> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of stream) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts) hear(part);
  }
  if (rest !== '') hear(rest);
}
