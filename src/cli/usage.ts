// How does a user learn what to type?
import type { Command, CommandOption } from './command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from './commands.ts';

/** What the tool is and which commands it has. */
export function renderUsage(): string {
  return [
    'Usage: catena <command> [options]',
    '',
    'Runs chains of CNI plugins.',
    '',
    'Commands:',
    ...renderColumns(COMMANDS.map(({ name, summary }) => [name, summary])),
    '',
    'catena help <command> shows the arguments of a command; catena --version shows the version.',
    '',
  ].join('\n');
}

/** One command's arguments and options. */
export function renderCommandUsage({ name, usage, summary, options }: Command): string {
  const rows = Object.entries({ ...options, ...GLOBAL_OPTIONS }).map(
    ([option, spec]) => [renderOption(option, spec), spec.help] as const,
  );
  return [
    `Usage: ${['catena', name, usage, '[options]'].filter(Boolean).join(' ')}`,
    '',
    `${summary[0]?.toUpperCase()}${summary.slice(1)}.`,
    '',
    'Options (the environment variable and the default in parentheses):',
    ...renderColumns(rows),
    '',
  ].join('\n');
}

function renderOption(name: string, { placeholder }: CommandOption): string {
  return placeholder === undefined ? `--${name}` : `--${name} ${placeholder}`;
}

function renderColumns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
