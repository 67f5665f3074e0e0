// What do a client and the daemon say to each other?
//
// It is part of every start of a link, so nothing of Node's is imported here (see client.ts).

/** The socket below the run directory; whoever may open it may configure the node's network. */
const SOCKET_NAME = 'catena.sock';

/** Where commands are posted. */
export const RUN_PATH = '/v1/run';

/** Commands that a client hands over. The others need no chain to be run. */
export const DAEMON_COMMANDS: readonly string[] = ['add', 'check', 'del', 'gc', 'status'];

/** Verbs of a link that a client hands over. The others are rare, and VERSION must not wait for standard input. */
export const DAEMON_VERBS: readonly string[] = ['ADD', 'CHECK', 'DEL'];

/** Variable of processes that the daemon started: what they call does not wait for a worker in turn. */
export const SERVED_VARIABLE = 'CATENA_SERVED';

/** Everything that a command's own process would have. */
export interface RunRequest {
  readonly place: Place;
  /** The link that is called; without one, standard input is for the runner. */
  readonly link?: string;
  /** Command line without the executable's name; empty for a call as a plugin. */
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input of a call as a plugin. */
  readonly stdin?: string;
  /** Names this request: asking again with the same key is no second request. */
  readonly key: string;
}

/** Everything that a command's own process would leave behind. */
export interface RunReply {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * What must be the same on both sides for the daemon to stand in for the client: the executable, so that an upgrade is
 * never answered by yesterday's code, and the namespaces that paths and devices are looked up in.
 */
export interface Place {
  readonly executable: string;
  readonly network: string;
  readonly mount: string;
}

/** Where the daemon of a run directory listens. */
export function socketPathOf(runDir: string): string {
  return `${runDir}/${SOCKET_NAME}`;
}
