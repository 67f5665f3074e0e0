// Which options and arguments does a command line have?
//
// As parseArgs() of node:util understands them. Loading that module takes 0.7 ms, and no other is needed by every command.
import { didYouMean, findNearest } from '../cni/json.ts';
import { type CommandOption, UsageError } from './command.ts';

/** Values by the name of the option; a list for one that may be repeated. */
export type Values = Readonly<Record<string, string | boolean | string[]>>;

/** @throws UsageError for an unknown option, and for one whose value is missing, needless or not one of its choices */
export function parseArguments(
  args: readonly string[],
  options: Readonly<Record<string, Pick<CommandOption, 'type' | 'multiple' | 'short' | 'choices'>>>,
): { values: Values; positionals: string[] } {
  const values: Record<string, string | boolean | string[]> = {};
  const positionals: string[] = [];
  for (let at = 0; at < args.length; at++) {
    const arg = args[at] ?? '';
    if (arg === '--') {
      positionals.push(...args.slice(at + 1));
      break;
    }
    if (!isOption(arg)) {
      positionals.push(arg);
      continue;
    }
    const { typed, name, given } = arg.startsWith('--') ? longOption(arg) : shortOption(arg, options);
    const option = name === undefined ? undefined : optionOf(options, name);
    if (name === undefined || option === undefined)
      throw new UsageError(`Cannot use ${typed}: ${unknown(name ?? typed.slice(1), options)}`);
    if (option.type === 'boolean') {
      if (given.length > 0) throw new UsageError(`Cannot use ${arg}: ${typed} takes no value`);
      values[name] = true;
      continue;
    }
    const value = given[0] ?? valueAfter(typed, args[++at]);
    if (option.choices?.includes(value) === false) throw notOneOf(`--${name}`, value, option.choices);
    values[name] = option.multiple ? [...((values[name] as string[]) ?? []), value] : value;
  }
  return { values, positionals };
}

/** An option as typed, its name, and the value behind it, if there is one. */
interface Typed {
  readonly typed: string;
  readonly name: string | undefined;
  readonly given: readonly string[];
}

function longOption(arg: string): Typed {
  const [typed = arg, ...given] = arg.split(/=(.*)/s, 2);
  return { typed, name: typed.slice(2), given };
}

/** `-p 80`, `-p80` and `-p=80` are the same. */
function shortOption(arg: string, options: Readonly<Record<string, Pick<CommandOption, 'short'>>>): Typed {
  const [typed, rest] = [arg.slice(0, 2), arg.slice(2).replace(/^=/, '')];
  const name = Object.keys(options).find(one => options[one]?.short === typed[1]);
  return { typed: name === undefined ? arg : typed, name, given: arg.length > 2 ? [rest] : [] };
}

/** A dash alone is an argument: it names standard input. */
function isOption(arg: string): boolean {
  return arg.startsWith('-') && arg !== '-';
}

function optionOf<T>(options: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(options, name) ? options[name] : undefined;
}

/** What begins with a dash may be the next option: the value was forgotten. */
function valueAfter(typed: string, next: string | undefined): string {
  if (next === undefined) throw new UsageError(`Cannot use ${typed}: its value is missing`);
  if (!isOption(next)) return next;
  throw new UsageError(`Cannot use ${typed}: its value is missing or begins with a dash: ${typed}=${next}`);
}

function notOneOf(option: string, value: string, choices: readonly string[]): UsageError {
  return new UsageError(
    `Cannot use ${option} "${value}": expected ${choices.join(', ')}${didYouMean(value, choices)}`,
  );
}

function unknown(name: string, options: object): string {
  const near = findNearest(name, Object.keys(options));
  return `no such option${near === undefined ? '' : `; did you mean --${near}?`}`;
}
