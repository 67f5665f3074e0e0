// Which word of an unfinished command line is being typed, and what do the words before it say?
import { type Command, type CommandOption, optionsOf } from '../command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from '../commands.ts';

/** A command line up to the cursor. */
export interface Line {
  /** Undefined while the command itself is typed, or if there is no such command. */
  readonly command: Command | undefined;
  /** The words before the one that is typed. */
  readonly before: readonly string[];
  readonly positionals: readonly string[];
  /** Values of options, the last of each. */
  readonly values: ReadonlyMap<string, string>;
  /** Options that are there, with or without a value. */
  readonly given: ReadonlySet<string>;
  /** The option whose value is typed. */
  readonly pending: string | undefined;
  /** What the shell has before the value in the same word (`--network=`). */
  readonly prefix: string;
  /** The word up to the cursor, without the prefix. */
  readonly word: string;
  /** Whether `--` was typed: no more options. */
  readonly argumentsOnly: boolean;
}

/**
 * Reads the words after the tool's name; the last is the one that is typed, and may be empty.
 * Bash makes three words of `--network=web`, zsh and fish one.
 */
export function readLine(words: readonly string[]): Line {
  const [name, ...rest] = words;
  const command = words.length > 1 ? COMMANDS.find(one => one.name === name) : undefined;
  const options = optionsFor(command);
  const values = new Map<string, string>();
  const given = new Set<string>();
  const positionals: string[] = [];
  let pending: string | undefined;
  let argumentsOnly = false;
  const typed = words.length > 1 ? (rest.at(-1) ?? '') : (name ?? '');
  for (const word of rest.slice(0, -1)) {
    if (pending !== undefined && word === '=') continue;
    if (pending !== undefined) {
      values.set(pending, word);
      pending = undefined;
    } else if (!argumentsOnly && word === '--') argumentsOnly = true;
    else if (!argumentsOnly && word.startsWith('--')) {
      const [, option = '', value] = /^--([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
      given.add(option);
      if (value !== undefined) values.set(option, value);
      else if (options[option]?.type === 'string') pending = option;
    } else positionals.push(word);
  }
  const line = { command, before: words.slice(0, -1), positionals, values, given, argumentsOnly };
  const [, inWord, value = ''] = /^--([^=]+)=(.*)$/s.exec(typed) ?? [];
  if (pending === undefined && !argumentsOnly && inWord !== undefined)
    return { ...line, pending: inWord, prefix: `--${inWord}=`, word: value };
  return { ...line, pending, prefix: '', word: pending !== undefined && typed === '=' ? '' : typed };
}

/** Every option that a command takes. */
export function optionsFor(command: Command | undefined): Readonly<Record<string, CommandOption>> {
  return optionsOf(command?.options ?? {}, { globalOptions: GLOBAL_OPTIONS });
}
