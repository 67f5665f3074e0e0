// What is a command of the tool: what does the table know of it, and what does it get to work with?
import type { Deadlines } from '../chain/runtime.ts';
import type { LinkCatalog } from '../cni/link-about.ts';
import type { ClusterAccess } from '../delegate/api-server.ts';
import type { Cluster } from '../delegate/kubernetes.ts';
import type { RequestWatcher, Watch } from '../observe/watcher.ts';
import type { WorkerSource } from '../worker/client.ts';

/** An option as the table declares it; names are without the leading dashes. */
export interface CommandOption {
  readonly type: 'string' | 'boolean';
  readonly multiple?: boolean;
  /** What stands for the value in the usage text (`<dir>`). */
  readonly placeholder?: string;
  readonly help: string;
}

/** A row of the table in commands.ts. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** Arguments as the usage text shows them (`<network> <netns>`). */
  readonly usage: string;
  /** How many arguments there may be. */
  readonly positionals: { readonly min: number; readonly max: number };
  readonly options: Readonly<Record<string, CommandOption>>;
  readonly load: () => Promise<CommandModule>;
}

/** What a file in commands/ exports. */
export interface CommandModule {
  /** Does the work. @returns the exit code; anything thrown is reported by main.ts */
  run(call: CommandCall): Promise<number>;
}

/** A call of this executable as a plugin: what a process gets, and what it leaves behind. */
export type AsPlugin = (
  call: { readonly env: CommandCall['env']; readonly stdin: string },
  surroundings: {
    readonly workers: WorkerSource;
    readonly signal: AbortSignal;
    /** Told of the links that it calls. */
    readonly watch?: Watch;
    /** How long each of them may take. */
    readonly deadlines?: Deadlines;
    /** Opens a cluster whose state calls share. */
    readonly openCluster?: (access: ClusterAccess) => Promise<Cluster>;
  },
) => Promise<{ readonly exitCode: number; readonly stdout: string; readonly stderr: string }>;

/** What the tool works with besides its command line. */
export interface Surroundings {
  /** The links that come with this executable. */
  readonly links: LinkCatalog;
  /** This process's environment unless given. */
  readonly env?: CommandCall['env'];
  /** Where somebody else's relative paths start from; paths are left as they are unless given. */
  readonly cwd?: string;
  /** Fires when the command is to end; by default that is a signal to this process. */
  readonly signal?: AbortSignal;
  /** Where our own links are served, for a process that runs many commands. */
  readonly workers?: WorkerSource;
  /** Told of every chain that is run. */
  readonly watcher?: RequestWatcher;
  /** Milliseconds that the command waited before it began. */
  readonly queueMs?: number;
  /** How long each link may take where the command line does not say. */
  readonly deadlines?: Deadlines;
  /** Names the request: see {@link CommandCall.request}. */
  readonly request?: string;
  /** Calls this executable as a plugin. */
  readonly asPlugin?: AsPlugin;
  /** Takes what would be written to descriptor 1 or 2. */
  readonly write?: (fd: 1 | 2, text: string) => void;
}

/** One invocation of a command. */
export interface CommandCall {
  readonly positionals: readonly string[];
  /** Value of a string option; undefined when it was not given. */
  text(option: string): string | undefined;
  /** All values of an option that may be repeated. */
  texts(option: string): readonly string[];
  /** Whether a boolean option was given. */
  on(option: string): boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The links that come with this executable. */
  readonly links: LinkCatalog;
  /** The directory that relative paths start from. */
  readonly cwd: string;
  /** Workers that serve our own links; a process of this command's own unless given. */
  readonly workers?: WorkerSource | undefined;
  /** Told of every chain that is run. */
  readonly watcher?: RequestWatcher | undefined;
  /** How long each link may take where the command line does not say. */
  readonly deadlines?: Deadlines | undefined;
  /** Milliseconds that the command waited in the daemon before it began. */
  readonly queueMs?: number | undefined;
  /** Runs another command line, for a process that serves those of others. @returns its exit code */
  readonly runCommand: (args: readonly string[], surroundings: Surroundings) => Promise<number>;
  /** Names the request, for who asks twice. */
  readonly request?: string | undefined;
  /** Calls this executable as a plugin; undefined where the links are not at hand. */
  readonly asPlugin?: AsPlugin | undefined;
  /** Fires when the user or the system ends the tool: what was begun is then undone. */
  readonly signal: AbortSignal;
  /** Writes to standard output, adding nothing. */
  out(text: string): void;
  /** Writes to standard error, adding nothing. */
  err(text: string): void;
}

/** The command line is wrong: exit code 2, with a pointer to the usage text. */
export class UsageError extends Error {}
