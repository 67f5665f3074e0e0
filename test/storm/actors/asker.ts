// How is a tool of iproute2 asked again and again, without a process for every question?

import { ENVIRONMENT } from '../node.ts';

/** A tool with `-batch -`: it reads one command per line and prints one line of JSON for each. */
export class Asker {
  readonly #argv: readonly string[];
  #child: Bun.Subprocess<'pipe', 'pipe', 'ignore'> | undefined;
  #lines: AsyncIterator<string> | undefined;

  /** @param argv the tool with its options, such as `ip -j -d` */
  constructor(...argv: string[]) {
    this.#argv = argv;
  }

  get pids(): number[] {
    return this.#child ? [this.#child.pid] : [];
  }

  /** The rows that the tool prints for a command. */
  async ask<T>(command: string): Promise<readonly T[]> {
    const child = this.#child ?? this.#start();
    child.stdin.write(`${command}\n`);
    child.stdin.flush();
    const { done, value } = (await this.#lines?.next()) ?? { done: true };
    if (done) throw new Error(`Cannot ask "${this.#argv.join(' ')}" for "${command}": it has ended`);
    return JSON.parse(value);
  }

  /** It keeps its namespace alive until it has ended. */
  async end(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    child?.kill('SIGKILL');
    await child?.exited;
  }

  #start(): Bun.Subprocess<'pipe', 'pipe', 'ignore'> {
    // Tools write whole lines to a terminal only.
    const argv = ['stdbuf', '-oL', ...this.#argv, '-batch', '-'];
    const options = { cwd: '/', env: ENVIRONMENT, stdin: 'pipe', stdout: 'pipe', stderr: 'ignore' } as const;
    const child = Bun.spawn(argv, options);
    this.#child = child;
    this.#lines = linesOf(child.stdout);
    return child;
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of stream) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
      yield text.slice(0, end);
      text = text.slice(end + 1);
    }
  }
}
