// Which options were given to a program of the tests?
import { readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs } from 'node:util';

/**
 * parseArgs() of node:util, for a program whose head comment says how to call it: `--help` prints that comment. Where the arguments
 * cannot be understood, or something else than a number replaces a default that is one, the process ends with exit code 2.
 *
 * @param numbers options without a default that are numbers
 */
export function readOptions<T extends ParseArgsConfig>(
  config: T,
  ...numbers: readonly string[]
): ReturnType<typeof parseArgs<T>> {
  const options = { ...config.options, help: { type: 'boolean' } } as const;
  try {
    const parsed = parseArgs({ ...config, options });
    const given = parsed.values as Readonly<Record<string, unknown>>;
    if (given.help === true) {
      process.stdout.write(headOf(Bun.main));
      process.exit(0);
    }
    for (const [name, { default: usual }] of Object.entries<{ default?: unknown }>(config.options ?? {})) {
      const value = given[name];
      if (value !== undefined && (numbers.includes(name) || isNumber(usual)) && !isNumber(value))
        throw new Error(`Cannot use --${name} "${value}": expected a number`);
    }
    return parsed as ReturnType<typeof parseArgs<T>>;
  } catch (error) {
    refuse(error instanceof Error ? error.message : String(error));
  }
}

/** Ends the process with exit code 2: it says what is wrong with its arguments, and how it is called. */
export function refuse(problem: string): never {
  process.stderr.write(`${problem}\n\n${headOf(Bun.main)}`);
  process.exit(2);
}

function isNumber(value: unknown): boolean {
  return /^\d+(\.\d+)?$/.test(String(value));
}

/** The comment at the head of a file. */
function headOf(file: string): string {
  const lines = readFileSync(file, 'utf8').split('\n');
  const end = lines.findIndex(line => !line.startsWith('//'));
  return `${lines
    .slice(0, end)
    .map(line => line.replace(/^\/\/ ?/, ''))
    .join('\n')}\n`;
}
