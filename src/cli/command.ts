// What is a command of the tool, what does a command line say, and what does a command get to work with?

import { resolve } from 'node:path';
import manifest from '../../package.json' with { type: 'json' };
import type { Deadlines, RequestWatcher, Watch } from '../chain/run/runtime.ts';
import { runDir } from '../cni/directories.ts';
import type { CniError } from '../cni/errors.ts';
import type { Invocation, Reply } from '../cni/invocation.ts';
import { didYouMean, findNearest, type JsonObject } from '../cni/json.ts';
import type { PluginCatalog } from '../cni/plugin-about.ts';
import type { SpecVersion } from '../cni/result.ts';
import type { Cluster, ClusterAccess } from '../delegate/cluster.ts';
import type { RunnerOptions } from '../delegate/runner.ts';
import { absolutePath } from '../files/read-file.ts';
import { LONGEST_S } from '../wait.ts';
import type { WorkerSource } from '../worker/process.ts';

/** Which version of the tool this is. */
export const TOOL_VERSION: string = manifest.version;

/** An option as declared in the table; option names are without the leading dashes. */
export interface CommandOption {
  readonly type: 'string' | 'boolean';
  readonly multiple?: boolean;
  /** A letter, typed after one dash. */
  readonly short?: string;
  /** Placeholder for the value in the usage text (`<dir>`). */
  readonly placeholder?: string;
  readonly choices?: readonly string[];
  /** The option without which this one would do nothing. */
  readonly with?: string;
  /** Options beside which this one, or they, would do nothing. */
  readonly not?: readonly string[];
  readonly help: string;
}

type More = Pick<CommandOption, 'short' | 'choices' | 'with' | 'not'>;

export function flag(help: string, more?: More) {
  return { type: 'boolean', help: withNeed(help, more), ...more } as const;
}

export function value(placeholder: string, help: string, more?: More) {
  return { type: 'string', placeholder, help: withNeed(help, more), ...more } as const;
}

function withNeed(help: string, more?: More): string {
  return more?.with === undefined ? help : `with --${more.with}: ${help}`;
}

export function values(placeholder: string, help: string, more?: More) {
  return { ...value(placeholder, help, more), multiple: true } as const;
}

/** A row of the table in commands.ts. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** Arguments as shown in the usage text (`<network> <netns>`). */
  readonly usage: string;
  readonly positionals: { readonly min: number; readonly max: number };
  readonly options: Readonly<Record<string, CommandOption>>;
  /** Loads only what serves the call: some options make another command of it. */
  readonly load: (call: Pick<CommandCall, 'on' | 'text' | 'positionals'>) => Promise<CommandModule>;
}

/** Everything that may be typed: the table in commands.ts, for those whom that table loads. */
export interface CommandTable {
  readonly commands: readonly Command[];
  readonly globalOptions: Readonly<Record<string, CommandOption>>;
}

/**
 * The command of a name.
 * @param action what cannot be done without it: `run`
 * @param more what else there is besides commands, for the error
 * @throws UsageError
 */
export function findCommand({ commands }: CommandTable, name: string, action: string, more: string): Command {
  const command = commands.find(one => one.name === name);
  if (command) return command;
  const names = commands.map(one => one.name);
  const near = didYouMean(name, names) || `; there are ${names.join(', ')}${more}`;
  throw new UsageError(`Cannot ${action} "${name}": no such command${near}`);
}

/** Every option of a command: its own, and those of every command, of which it may replace one. */
export function optionsOf(
  own: Command['options'],
  { globalOptions }: Pick<CommandTable, 'globalOptions'>,
): Command['options'] {
  return { ...own, ...globalOptions, ...own };
}

/** What a file in commands/ exports. */
export interface CommandModule {
  /** Runs the command. @returns the exit code; main.ts reports anything thrown */
  run(call: CommandCall): Promise<number>;
}

/** Runs a call of this executable as a plugin, with the input and output of a plugin's process. */
export type AsPlugin = (
  call: Invocation,
  surroundings: {
    readonly workers: WorkerSource;
    readonly signal: AbortSignal;
    /** Notified of the plugins that it calls. */
    readonly watch?: Watch;
    /** Deadline of each of them. */
    readonly deadlines?: Deadlines;
    /** Opens a cluster whose state is shared by several calls. */
    readonly openCluster?: (access: ClusterAccess) => Promise<Cluster>;
  },
) => Promise<Reply>;

/** Loads how a configuration of multus is read. */
export type ReadMultus = () => Promise<{
  /** The runner's entry that says the same, and keys that it leaves out. @throws CniError 7 */
  translate(entry: JsonObject, kubeconfig: string): { entry: JsonObject; dropped: readonly string[] };
  /** The evaluated entry of a runner. @throws CniError 7 */
  optionsOf(entry: JsonObject, network: string, version: SpecVersion): RunnerOptions;
}>;

/** What a command works with, whatever its command line says. */
interface Surroundings {
  /** The plugins that are part of this executable. */
  readonly plugins: PluginCatalog;
  /** Workers that serve our own plugins, for a process that runs many commands; by default the command starts one of its own. */
  readonly workers?: WorkerSource;
  /** Notified of every chain that is run. */
  readonly watcher?: RequestWatcher;
  /** Milliseconds that the command was queued in the daemon. */
  readonly queueMs?: number;
  /** Deadline of each plugin if the command line does not set one. */
  readonly deadlines?: Deadlines;
  /** Identifies the request, so that a repetition is recognised. */
  readonly request?: string;
  /** Calls this executable as a plugin; undefined if the plugins are not available. */
  readonly asPlugin?: AsPlugin;
  /** How multus is read; undefined if the plugins are not available. */
  readonly multus?: ReadMultus;
}

/** What the tool works with, apart from its command line. */
export interface CommandContext extends Surroundings {
  /** By default this process's environment. */
  readonly env?: CommandCall['env'];
  /** Directory against which a remote caller's relative paths are resolved; without it, paths are left as they are. */
  readonly cwd?: string;
  /** Aborted when the command is to end; by default on a signal to this process. */
  readonly signal?: AbortSignal;
  /** Writes to file descriptor 1 or 2 on behalf of the command. Returns `unread` if the reader has closed its end. */
  readonly write?: (fd: 1 | 2, text: string) => unknown;
}

export interface CommandCall extends Surroundings {
  readonly positionals: readonly string[];
  /** Value of a string option; undefined if it was not given. */
  text(option: string): string | undefined;
  /** All values of a repeatable option. */
  texts(option: string): readonly string[];
  /** Whether a boolean option was given. */
  on(option: string): boolean;
  /** `--output`, for which `--json` is short: one of the command's formats, or `text`. */
  readonly format: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Directory against which relative paths are resolved; undefined if it was deleted or has no path for another reason. */
  readonly cwd: string | undefined;
  readonly table: CommandTable;
  /** Runs another command line, for a process that serves others. @returns its exit code */
  readonly runCommand: (args: readonly string[], surroundings: CommandContext) => Promise<number>;
  /** Aborted when the user or the system ends the tool; work in progress is then undone. */
  readonly signal: AbortSignal;
  /** Writes the text to standard output unchanged. */
  out(text: string): void;
  /** The reader of standard output has closed its end: what follows is not read. */
  readonly isUnread: boolean;
  /** Writes the text to standard error, on a terminal with lines that fit it. */
  err(text: string): void;
  /** Reports a problem that did not stop the command: a line, of JSON if the output is for programs. */
  warn(problem: Pick<CniError, 'code' | 'message'>): void;
}

/** A wrong command line: exit code 2, with a hint to the usage text. */
export class UsageError extends Error {}

/**
 * Reads the command line of a command.
 * @param args without the command's name
 * @param cwd directory against which relative paths are resolved; without it, paths are left as they are
 * @throws UsageError
 */
export function readCommandLine(
  { name, usage, options, positionals: { min, max } }: Command,
  args: readonly string[],
  table: CommandTable,
  cwd: string | undefined,
): Pick<CommandCall, 'positionals' | 'text' | 'texts' | 'on' | 'format'> {
  const { values, positionals } = parse();
  const needsHelp = values.help === true;
  const count = positionals.length;
  if (!needsHelp && (count < min || count > max))
    throw new UsageError(
      `Cannot run "${name}" with ${count} argument${count === 1 ? '' : 's'}: it takes ${usage || 'none'}; see catena help ${name}`,
    );
  if (!needsHelp) refuseIdle();
  return {
    positionals,
    text(option) {
      const value = values[option];
      return typeof value === 'string' ? place(option, value) : undefined;
    },
    texts(option) {
      const value = values[option];
      return (Array.isArray(value) ? value : []).map(text => place(option, text));
    },
    on: option => values[option] === true,
    format: needsHelp ? 'text' : readFormat(values),
  };

  function parse(): ReturnType<typeof parseArguments> {
    try {
      return parseArguments(args, optionsOf(options, table));
    } catch (cause) {
      throw new UsageError(`${(cause as Error).message}; see catena help ${name}`, { cause });
    }
  }

  /** Who gives an option that does nothing believes that it did something. */
  function refuseIdle(): void {
    for (const given of Object.keys(values)) {
      const { with: needed = given, not = [] } = options[given] ?? {};
      const other = not.find(one => Object.hasOwn(values, one));
      const problem = Object.hasOwn(values, needed)
        ? other && `both --${other} and --${given}`
        : `--${given} without --${needed}`;
      if (problem !== undefined) throw new UsageError(`Cannot use ${problem}; see catena help ${name}`);
    }
  }

  function place(option: string, text: string): string {
    const { placeholder = '' } = options[option] ?? {};
    return cwd !== undefined && PATHS.includes(placeholder) ? resolve(cwd, text) : text;
  }
}

/** Placeholders for paths in the usage text. */
const PATHS: readonly string[] = ['<dir>', '<file>', '<conflist>'];

/**
 * `--output`, for which `--json` is short; `text` if neither is given.
 * @throws UsageError for both of them
 */
export function readFormat({ output, json }: Readonly<Record<string, unknown>>): string {
  if (typeof output !== 'string') return json === true ? 'json' : 'text';
  if (json === true && output !== 'json')
    throw new UsageError(`Cannot use both --json and --output "${output}"`);
  return output;
}

// As parseArgs() of node:util understands them. Loading that module takes 0.7 ms, and no other is needed by every command.

/**
 * @returns the values by the name of the option; a list for one that may be repeated
 * @throws UsageError for an unknown option, and for one whose value is missing, needless or not one of its choices
 */
export function parseArguments(
  args: readonly string[],
  options: Readonly<Record<string, Pick<CommandOption, 'type' | 'multiple' | 'short' | 'choices'>>>,
): { values: Record<string, string | boolean | string[]>; positionals: string[] } {
  const values: ReturnType<typeof parseArguments>['values'] = {};
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
    const { typed, name, given } = typedOption(arg, options);
    const option = name !== undefined && Object.hasOwn(options, name) ? options[name] : undefined;
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

/**
 * Of `-p 80`, `-p80`, `-p=80`, `--port 80` and `--port=80` the name is the same.
 * @returns the option as typed, its name, and the value behind it, if there is one
 */
export function typedOption(arg: string, options: Readonly<Record<string, Pick<CommandOption, 'short'>>>) {
  if (arg.startsWith('--')) {
    const [typed = arg, ...given] = arg.split(/=(.*)/s, 2);
    return { typed, name: typed.slice(2), given };
  }
  const [typed, rest] = [arg.slice(0, 2), arg.slice(2).replace(/^=/, '')];
  const name = Object.keys(options).find(one => options[one]?.short === typed[1]);
  return { typed: name === undefined ? arg : typed, name, given: arg.length > 2 ? [rest] : [] };
}

/** A dash alone is an argument: it names standard input. */
export function isOption(arg: string): boolean {
  return arg.startsWith('-') && arg !== '-';
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

/**
 * Refuses options that do nothing beside the arguments of a command; what other options forbid is in its table.
 * @param place ends the sentence, such as `without an id`
 * @throws UsageError
 */
export function refuseOptions(call: Pick<CommandCall, 'on' | 'text'>, place: string, ...options: string[]) {
  const idle = options.find(one => call.on(one) || call.text(one) !== undefined);
  if (idle !== undefined) throw new UsageError(`Cannot use --${idle} ${place}`);
}

interface Limits {
  /** Whether 0 is allowed. */
  readonly zero?: boolean;
  readonly most?: number;
}

/** The absolute path in an option. */
export function pathOf(call: CommandCall, option: string): string | undefined {
  const text = call.text(option);
  return text === undefined ? undefined : absolutePath(text, call.cwd);
}

/** The directory of sockets, locks and traces. */
export function runDirOf(call: CommandCall): string {
  return pathOf(call, 'run-dir') ?? absolutePath(runDir(call.env), call.cwd);
}

/** The seconds of an option. @throws UsageError */
export function secondsOf<T extends number | undefined>(
  call: Pick<CommandCall, 'text'>,
  option: string,
  fallback: T,
  limits?: Limits,
): number | T {
  const text = call.text(option);
  return text === undefined ? fallback : secondsIn(text, `--${option} "${text}"`, limits);
}

/**
 * The seconds in a text: above zero, at most what a timer can wait.
 * @param as names it in the error (`--timeout "add=x"`)
 * @throws UsageError
 */
export function secondsIn(text: string, as: string, { zero = false, most = LONGEST_S }: Limits = {}): number {
  const seconds = Number(text);
  if (text.trim() !== '' && (seconds > 0 || (zero && seconds === 0)) && seconds <= most) return seconds;
  const range = `${zero ? 'from' : 'above'} 0 to ${most}`;
  throw new UsageError(`Cannot use ${as}: expected a number of seconds ${range}`);
}
