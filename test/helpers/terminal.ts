// How does a test run a program on a terminal, type into it and see what it shows?
import { type RunOptions, run } from './command.ts';

/** What was on the terminal, without the carriage returns that it adds. */
export interface OnTerminal {
  readonly exitCode: number;
  readonly shown: string;
}

/**
 * Runs the program on a pseudo-terminal of util-linux's script(1): all three descriptors are the terminal.
 * @param typed what the user types, ahead of the questions
 */
export async function typeInto(
  argv: readonly string[],
  typed: string,
  options: RunOptions = {},
): Promise<OnTerminal> {
  const quoted = argv.map(one => `'${one.replaceAll("'", "'\\''")}'`).join(' ');
  const { exitCode, stdout } = await run(
    ['script', '--quiet', '--return', '--command', quoted, '/dev/null'],
    {
      timeoutMs: 60_000,
      ...options,
      stdin: typed,
    },
  );
  return { exitCode, shown: stdout.replaceAll('\r\n', '\n') };
}
