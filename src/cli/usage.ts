// How does a user learn what to type?
import { type Command, type CommandOption, type CommandTable, optionsOf } from './command.ts';
import { EXAMPLES } from './help/examples.ts';
import { renderColumns, wrap } from './terminal/lines.ts';

/** Columns of the usage text where the output is no terminal, and the most that it takes: longer lines are hard to read. */
const [PLAIN, MOST] = [100, 120];

/**
 * What the tool is and which commands it has.
 * @param width columns of the terminal, if there is one
 */
export function renderUsage({ commands: all }: CommandTable, width?: number): string {
  const columns = fit(width);
  const summaries = new Map(all.map(({ name, summary }) => [name, summary]));
  const left = Math.max(...all.map(({ name }) => name.length));
  return [
    'Usage: catena <command> [options]',
    '',
    'Runs chains of CNI plugins.',
    ...GROUPS.flatMap(({ title, commands }) => [
      '',
      `${title}:`,
      ...renderColumns(
        commands.map(name => [name.padEnd(left), summaries.get(name) ?? '']),
        columns,
      ),
    ]),
    '',
    ...wrap(
      'catena help <command> shows arguments, options and examples of a command; catena --version shows the version.',
      columns,
      '',
      '',
    ),
    '',
  ].join('\n');
}

/**
 * One command's arguments, options and examples.
 * @param width columns of the terminal, if there is one
 */
export function renderCommandUsage(
  { name, usage, summary, options }: Command,
  { globalOptions }: CommandTable,
  width?: number,
): string {
  const columns = fit(width);
  const rows = Object.entries(optionsOf(options, { globalOptions })).map(
    ([option, spec]) => [renderOption(option, spec), spec.help] as const,
  );
  const examples = EXAMPLES[name] ?? [];
  return [
    ...wrap(`Usage: ${['catena', name, usage, '[options]'].filter(Boolean).join(' ')}`, columns),
    '',
    ...wrap(`${summary[0]?.toUpperCase()}${summary.slice(1)}.`, columns, '', ''),
    '',
    ...wrap('Options (the environment variable and the default in parentheses):', columns, '', ''),
    ...renderColumns(rows, columns),
    ...(examples.length ? ['', 'Examples:'] : []),
    // A command line is never broken: it is there to be copied.
    ...examples.flatMap(([text, line]) => [...wrap(`# ${text}`, columns, '  ', '  # '), `  ${line}`]),
    '',
  ].join('\n');
}

function fit(width = PLAIN): number {
  return Math.min(width, MOST);
}

function renderOption(name: string, { placeholder, short }: CommandOption): string {
  const typed = short === undefined ? `--${name}` : `-${short}, --${name}`;
  return placeholder === undefined ? typed : `${typed} ${placeholder}`;
}

/** Commands that answer one kind of question, in the order of the usage text. Every command is in one group. */
export const GROUPS: readonly { readonly title: string; readonly commands: readonly string[] }[] = [
  { title: 'Attach containers', commands: ['add', 'check', 'del', 'set', 'attach', 'detach'] },
  { title: 'See what is there', commands: ['ls', 'who', 'why-not', 'log', 'ipam', 'networks', 'ui'] },
  { title: 'Keep a node right', commands: ['doctor', 'repair', 'gc', 'status'] },
  { title: 'Write lists and plugins', commands: ['init', 'validate', 'try', 'conformance'] },
  {
    title: 'Install and exchange executables',
    commands: ['install', 'uninstall', 'compare', 'swap', 'handover'],
  },
  { title: 'Run the daemon', commands: ['daemon'] },
  { title: 'Read', commands: ['help'] },
];
