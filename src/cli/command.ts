// What is a command of the tool, and what does it get to work with?

import type { Deadlines, RequestWatcher, Watch } from '../chain/run/runtime.ts';
import { runDir } from '../cni/directories.ts';
import type { CniError } from '../cni/errors.ts';
import type { Invocation, Reply } from '../cni/invocation.ts';
import { didYouMean, type JsonObject } from '../cni/json.ts';
import type { PluginCatalog } from '../cni/plugin-about.ts';
import type { SpecVersion } from '../cni/result.ts';
import type { Cluster, ClusterAccess } from '../delegate/cluster.ts';
import type { RunnerOptions } from '../delegate/runner.ts';
import { absolutePath } from '../files/read-file.ts';
import { LONGEST_S } from '../wait.ts';
import type { WorkerSource } from '../worker/client.ts';

/** An option as declared in the table; option names are without the leading dashes. */
export interface CommandOption {
  readonly type: 'string' | 'boolean';
  readonly multiple?: boolean;
  /** A letter, typed after one dash. */
  readonly short?: string;
  /** Placeholder for the value in the usage text (`<dir>`). */
  readonly placeholder?: string;
  /** The words that the value may be. */
  readonly choices?: readonly string[];
  readonly help: string;
}

type More = Pick<CommandOption, 'short' | 'choices'>;

/** An option that is given or not. */
export function flag(help: string, more?: More) {
  return { type: 'boolean', help, ...more } as const;
}

/** An option with a value. */
export function value(placeholder: string, help: string, more?: More) {
  return { type: 'string', placeholder, help, ...more } as const;
}

/** An option with a value that may be repeated. */
export function values(placeholder: string, help: string, more?: More) {
  return { ...value(placeholder, help, more), multiple: true } as const;
}

/** A row of the table in commands.ts. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** Arguments as shown in the usage text (`<network> <netns>`). */
  readonly usage: string;
  /** Allowed number of arguments. */
  readonly positionals: { readonly min: number; readonly max: number };
  readonly options: Readonly<Record<string, CommandOption>>;
  /** Loads only what serves the call: some options make another command of it. */
  readonly load: (call: Pick<CommandCall, 'on' | 'text' | 'positionals'>) => Promise<CommandModule>;
}

/** Everything that may be typed: the table in commands.ts, for those whom that table loads. */
export interface CommandTable {
  readonly commands: readonly Command[];
  /** The options of every command. */
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
  /** Writes to file descriptor 1 or 2 on behalf of the command. */
  readonly write?: (fd: 1 | 2, text: string) => void;
}

/** One invocation of a command. */
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
  /** The tool's commands. */
  readonly table: CommandTable;
  /** Runs another command line, for a process that serves others. @returns its exit code */
  readonly runCommand: (args: readonly string[], surroundings: CommandContext) => Promise<number>;
  /** Aborted when the user or the system ends the tool; work in progress is then undone. */
  readonly signal: AbortSignal;
  /** Writes the text to standard output unchanged. */
  out(text: string): void;
  /** Writes the text to standard error, on a terminal with lines that fit it. */
  err(text: string): void;
  /** Reports a problem that did not stop the command: a line, of JSON if the output is for programs. */
  warn(problem: Pick<CniError, 'code' | 'message'>): void;
}

/** A wrong command line: exit code 2, with a hint to the usage text. */
export class UsageError extends Error {}

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
