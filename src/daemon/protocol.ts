// What do a client and the daemon say to each other?
//
// Every start of a plugin loads this file, so it imports nothing of Node's.
import type { AnswerOf } from '../cli/answers/kinds.ts';
import type { Invocation, Reply } from '../cni/invocation.ts';

/** Path by which a new daemon asks the running one to hand over. */
export const HANDOVER_PATH = '/v1/handover';

/** Path by which a daemon is asked to finish its requests and to end. */
export const STOP_PATH = '/v1/stop';

/** Path of a {@link RunRequest} as JSON, for people: the same message as on the socket for calls. */
export const CALL_PATH = '/v1/call';

/** Path of {@link DaemonState}. */
export const STATE_PATH = '/v1/state';

/** Path by which a daemon is told that its executable was replaced. */
export const SUCCESSION_PATH = '/v1/succession';

/** Tells a daemon that a call has started it. */
export const ON_DEMAND_VARIABLE = 'CATENA_ON_DEMAND';

/** How long calls start no daemon after one was started, in milliseconds: it may have ended at once. */
export const START_AGAIN_MS = 30_000;

/** Interval in milliseconds at which a daemon shows a waiting client that it is alive. */
export const SIGN_MS = 250;

/** How long a client waits for such a sign, in milliseconds. */
export const SILENCE_MS = 1_000;

/** How long a silent daemon may be one that waits for a processor, on a node that is busy. */
export const BUSY_MS = 30_000;

/** Longest wait for an answer, in milliseconds; runtimes give up long before that. */
export const ANSWER_DEADLINE_MS = 10 * 60_000;

/**
 * Why a daemon declines a request: `request`: it does not know this kind of request; `build`: the client is another executable;
 * `namespace`: the client is in another network or mount namespace; `stale`: the client had gone or given up before the daemon came to
 * the request; `busy`: it would wait for others that wait for something themselves; `workers`: no worker could take the call; `ending`: the daemon is shutting down.
 */
export type DeclineReason = 'request' | 'build' | 'namespace' | 'stale' | 'busy' | 'workers' | 'ending';

/**
 * Environment of a daemon, in milliseconds. The engine's allocator has a thread that gives freed parts of pages back to the kernel, ten times a
 * second: a fifth of the daemon's processor time beside single pods. Once a minute it gives back as much. Each second in which a heap has grown
 * ends with a collection of garbage, in the worker as well: a sixth of that time. A heap that has grown much is collected without that, and one
 * at rest by rest() of sys/process.ts. The front sets both, too, where it starts a daemon.
 */
export const ENGINE_SETTINGS = {
  MIMALLOC_PURGE_HOLES_MIN_INTERVAL: '60000',
  BUN_GC_TIMER_INTERVAL: '30000',
} as const;

/** Commands that a client forwards to the daemon. The others run no chain. */
export const DAEMON_COMMANDS: readonly string[] = [
  'add',
  'check',
  'set',
  'attach',
  'detach',
  'del',
  'gc',
  'status',
];

/** Plugin verbs that a client forwards to the daemon. VERSION must not wait for standard input. */
export const DAEMON_VERBS: readonly string[] = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS'];

/** Variable that is set for processes started by the daemon: their calls must not wait for a worker in turn. */
export const SERVED_VARIABLE = 'CATENA_SERVED';

/**
 * Variable by which the front (plugins/front) tells the Bun program that it has asked the daemon without success: `declined <key>`,
 * `lost <key>` or `broken <key> <calls file>`. Other words are those of another build.
 */
export const UNANSWERED_VARIABLE = 'CATENA_UNANSWERED';

/** The front's question to the Bun program what a silence means: `--judge-silence <calls file> <key> <milliseconds>`. */
export const JUDGE_FLAG = '--judge-silence';

/** Exit status as the answer to {@link JUDGE_FLAG}; any other one says nothing. */
export const JUDGED = { wait: 10, declined: 11, lost: 12 } as const;

/** A call of one of our plugins, by its name; without one, of the delegate runner. */
export interface PluginRequest extends Invocation {
  readonly plugin?: string | undefined;
}

/** A call, or a command, as the process sent it that would otherwise do the work itself. */
export interface RunRequest extends PluginRequest {
  /** Command line without the executable's name; empty for a call. */
  readonly args: readonly string[];
  readonly cwd: string;
  readonly place: ProcessPlace;
  /** Identifies the request: the front and the daemon note under it which of them does the work (calls.ts). */
  readonly key: string;
  /** How long ago the client sent it, for GC: was started, in milliseconds; negative if the clock was set back since. */
  readonly ageMs?: number;
}

/** The outcome, or why the client is to do the work itself. */
export interface RunAnswer extends Reply {
  readonly declined?: DeclineReason;
  /** Part of the work was already done and must be undone or completed. */
  readonly begun?: boolean;
  /** Why, human-readable. */
  readonly error?: string;
}

/** The answer to a request that the daemon leaves to its client. */
export function decline(declined: DeclineReason, error: string): RunAnswer {
  return { exitCode: 1, stdout: '', stderr: '', declined, error };
}

export type PingReply = NonNullable<AnswerOf<'Ping'>['reply']>;

/** The line that `catena daemon --ping` prints. */
export function describePing({
  version,
  executable,
  pid,
  running,
  queued,
  uptimeSeconds,
}: PingReply): string {
  const waiting = queued > 0 ? `, ${queued} waiting` : '';
  return `daemon ${version} (executable ${executable}), process ${pid}, ${running} in progress${waiting}, up ${uptimeSeconds} s`;
}

/** What a daemon reports about itself; one of another build may report less. */
export type DaemonState = AnswerOf<'DaemonState'> &
  Required<Pick<AnswerOf<'DaemonState'>, 'version' | 'running' | 'queued' | 'served'>>;

/**
 * What must be the same on both sides for the daemon to stand in for the client: the executable, so that old code never answers
 * after an upgrade, and the namespaces in which paths and devices are looked up.
 */
export type ProcessPlace = NonNullable<AnswerOf<'DaemonState'>['place']>;

/** The socket in the run directory. A process that may open it may configure the node's network. */
export function socketPathOf(runDir: string): string {
  return `${runDir}/catena.sock`;
}

/** The socket that clients send calls to (wire.ts). The other one is for people and tools. */
export function wireOf(socket: string): string {
  return `${socket}.wire`;
}

/**
 * The socket that a service manager keeps for the daemon of a socket. While no daemon listens, both names are symbolic links to it.
 * There is no calls file for it: no call is ever made there.
 */
export function startSocketOf(socket: string): string {
  return `${socket}.start`;
}

/** The file that notes when a call last started a daemon (on-demand.ts). */
export function startNoteOf(socket: string): string {
  return `${socket}.started`;
}

/** The file that a daemon keeps locked while it listens on the socket. */
export function seatFileOf(socket: string): string {
  return `${socket}.seat`;
}

/**
 * The file next to a socket in which its daemon notes the calls that it has begun (calls.ts). A later socket of the same
 * name has another file.
 * @param stat of the socket for calls
 */
export function callsFileOf(socket: string, { ino, mtimeMs }: { ino: number; mtimeMs: number }): string {
  return `${callsFilesOf(socket)}${ino}-${Math.trunc(mtimeMs)}`;
}

/** How the names of all those files begin. */
export function callsFilesOf(socket: string): string {
  return `${socket}.calls.`;
}
