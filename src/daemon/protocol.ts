// What do a client and the daemon say to each other?
import { lstatSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** The socket below the run directory; whoever may open it may configure the node's network. */
export const SOCKET_NAME = 'catena.sock';

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

/** The place of this process. */
export function ownPlace(): Place {
  return {
    executable: identityOf('/proc/self/exe'),
    network: identityOf('/proc/self/ns/net'),
    mount: identityOf('/proc/self/ns/mnt'),
  };
}

/** Where the daemon of a run directory listens. */
export function socketPathOf(runDir: string): string {
  return join(runDir, SOCKET_NAME);
}

/**
 * The daemon's socket, if one is there that nobody else made: who answers gets our environment and may answer for us.
 * What root made is root's to answer.
 */
export function findSocket(runDir: string): string | undefined {
  const path = socketPathOf(runDir);
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (!found?.isSocket()) return undefined;
  return found.uid === 0 || found.uid === process.geteuid?.() ? path : undefined;
}

function identityOf(path: string): string {
  const { dev, ino } = statSync(path, { bigint: true });
  return `${dev}:${ino}`;
}
