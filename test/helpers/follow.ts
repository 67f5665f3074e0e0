// What has a program printed that runs until it is told to end?

/** What a program that follows something has printed so far. */
export interface Following {
  readonly said: () => string;
  /** Ends it as a person at a terminal would. @returns its exit code */
  end(): Promise<number>;
}

/** Reads the output of a program as it comes. */
export function follow(child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>): Following {
  let said = '';
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const piece of child.stdout) said += decoder.decode(piece, { stream: true });
  })();
  return {
    said: () => said,
    async end() {
      child.kill('SIGINT');
      const code = await child.exited;
      await reading;
      return code;
    },
  };
}
