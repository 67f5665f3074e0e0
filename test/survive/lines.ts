// How is the output of another program read line by line?

/** Passes on each line as it arrives; settles at the end of the stream. */
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
