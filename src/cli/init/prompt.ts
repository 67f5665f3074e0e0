// How are questions asked on a terminal?
import { createInterface } from 'node:readline';
import type { CommandCall } from '../command.ts';

/** Questions and answers. */
export interface Prompt {
  /**
   * Asks until the answer can be used.
   * @param fallback what an empty answer means
   * @param read throws an error that says why the answer cannot be used
   */
  ask<T>(question: string, fallback: string, read: (answer: string) => T): Promise<T>;
  close(): void;
}

/** Reads standard input line by line; questions go to standard error. What was typed ahead answers the next question. */
export function openPrompt(call: CommandCall): Prompt {
  const lines: string[] = [];
  let wake = () => {};
  let ended = false;
  const reader = createInterface({ input: process.stdin, terminal: false });
  reader.on('line', line => {
    lines.push(line);
    wake();
  });
  reader.on('close', () => {
    ended = true;
    wake();
  });
  const nextLine = async (): Promise<string> => {
    while (lines.length === 0 && !ended) {
      await new Promise<void>(resolve => {
        wake = resolve;
      });
    }
    const line = lines.shift();
    if (line === undefined) throw new Error('Cannot write a list: the input ended before the last answer');
    return line.trim();
  };
  return {
    async ask(question, fallback, read) {
      for (;;) {
        call.err(`${question} [${fallback}] `);
        const answer = (await nextLine()) || fallback;
        try {
          return read(answer);
        } catch (error) {
          call.err(`${(error as Error).message}\n`);
        }
      }
    },
    close: () => reader.close(),
  };
}
