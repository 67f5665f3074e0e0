// What does the manual say about the tool and each of its commands?
//
// Pages of section 1, in the macros of man(7), from the same tables as `catena help`.
import { type Command, type CommandOption, type CommandTable, optionsOf, TOOL_VERSION } from '../command.ts';
import { COMMON_EXIT_CODES, type ExitCode, MORE_EXIT_CODES } from '../exit-codes.ts';
import { EXAMPLES, GROUPS } from '../usage.ts';

/** The tool's page, of which the others are part. */
const TOP = 'catena';

export function manPages(table: CommandTable): { readonly name: string; readonly text: string }[] {
  return [
    { name: `${TOP}.1`, text: renderTop(table) },
    ...table.commands.map(command => ({
      name: `${TOP}-${command.name}.1`,
      text: renderCommand(command, table),
    })),
  ];
}

/** The page of the tool: its commands in groups, and what they have in common. */
export function renderTop({ commands: all, globalOptions }: CommandTable): string {
  const summaries = new Map(all.map(({ name, summary }) => [name, summary]));
  return page(TOP, 'run chains of CNI plugins', [
    '.SH SYNOPSIS',
    bold('catena'),
    escapeText('<command> [options]'),
    '.SH DESCRIPTION',
    'Attaches network namespaces to networks, as the plugins of a list of the Container Network Interface',
    'say, and shows, checks, repairs and explains what is attached.',
    ...GROUPS.flatMap(({ title, commands }) => [
      `.SS ${quoted(escapeText(title))}`,
      ...commands.flatMap(name => ['.TP', bold(`catena ${name}`), sentence(summaries.get(name) ?? '')]),
    ]),
    '.SH OPTIONS',
    'Every command has these.',
    ...Object.entries(globalOptions).flatMap(renderOption),
    ...exitStatus([]),
    '.SH SEE ALSO',
    all.map(({ name }) => reference(name)).join(',\n'),
  ]);
}

export function renderCommand(
  { name, usage, summary, options }: Command,
  { globalOptions }: CommandTable,
): string {
  const examples = EXAMPLES[name] ?? [];
  const group = GROUPS.find(({ commands }) => commands.includes(name))?.commands ?? [];
  const others = group.filter(other => other !== name);
  return page(`${TOP}-${name}`, summary, [
    '.SH SYNOPSIS',
    bold(`catena ${name}`),
    escapeText([usage, '[options]'].filter(Boolean).join(' ')),
    '.SH DESCRIPTION',
    sentence(summary),
    '.SH OPTIONS',
    'The environment variable and the default stand in parentheses; an option wins over its variable.',
    ...Object.entries(optionsOf(options, { globalOptions })).flatMap(renderOption),
    ...(examples.length ? ['.SH EXAMPLES'] : []),
    ...examples.flatMap(([text, line]) => ['.TP', sentence(text), '.nf', bold(line), '.fi']),
    ...exitStatus(MORE_EXIT_CODES[name] ?? []),
    '.SH SEE ALSO',
    [`.BR ${TOP} (1)`, ...others.map(reference)].join(',\n'),
  ]);
}

function page(name: string, about: string, body: readonly string[]): string {
  const heading = `.TH ${name.toUpperCase().replaceAll('-', '\\-')} 1 "" ${quoted(`catena ${TOOL_VERSION}`)} "Catena"`;
  const line = `${escapeLiteral(name)} \\- ${escapeText(about)}`;
  return [heading, '.SH NAME', line, ...body, ''].join('\n');
}

function renderOption([name, { placeholder, help, short }]: [string, CommandOption]): string[] {
  const option = quoted(escapeLiteral(short === undefined ? `--${name}` : `-${short}, --${name}`));
  const value = placeholder === undefined ? '' : ` ${quoted(` ${escapeText(placeholder)}`)}`;
  return ['.TP', placeholder === undefined ? `.B ${option}` : `.BI ${option}${value}`, escapeText(help)];
}

function exitStatus(more: readonly ExitCode[]): string[] {
  const rows = [...COMMON_EXIT_CODES, ...more];
  return [
    '.SH EXIT STATUS',
    ...rows.flatMap(({ code, meaning }) => ['.TP', bold(`${code}`), escapeText(meaning)]),
  ];
}

function reference(name: string): string {
  return `.BR ${escapeLiteral(`${TOP}-${name}`)} (1)`;
}

function bold(text: string): string {
  return `.B ${quoted(escapeLiteral(text))}`;
}

function sentence(text: string): string {
  const end = text.endsWith('?') ? '' : '.';
  return escapeText(`${text[0]?.toUpperCase() ?? ''}${text.slice(1)}${end}`);
}

/** Ordinary text: nothing in it is taken for a request or an escape. */
export function escapeText(text: string): string {
  const plain = text.replaceAll('\\', '\\e').replace(/[^\n\x20-\x7e]/gu, toUnicodeEscape);
  return plain.replace(/^(?=[.'])/gm, '\\&');
}

/** What a user types: a hyphen stays one, so that it can be copied. Quotes and accents would become typographic ones. */
export function escapeLiteral(text: string): string {
  return escapeText(text)
    .replaceAll('-', '\\-')
    .replaceAll('`', '\\(ga')
    .replaceAll("'", '\\(aq')
    .replaceAll('^', '\\(ha')
    .replaceAll('~', '\\(ti');
}

/** A macro's argument: it may have spaces. */
export function quoted(text: string): string {
  return `"${text.replaceAll('"', '\\(dq')}"`;
}

function toUnicodeEscape(character: string): string {
  const point = character.codePointAt(0) ?? 0;
  return `\\[u${point.toString(16).toUpperCase().padStart(4, '0')}]`;
}
