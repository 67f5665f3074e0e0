// How does a call get the daemon's outcome, if there is a daemon?
//
// Part of every start: see main.ts.
import { runDir } from '../src/cni/directories.ts';
import { askDaemon, findDoor, mayListen } from '../src/daemon/client.ts';
import { SERVED_VARIABLE } from '../src/daemon/protocol.ts';
import { readInput, textOf, writeOut } from '../src/plugin/early-stdio.ts';
import { FAULT_VARIABLE } from '../src/sys/fault-variable.ts';

/** What the daemon is asked to run. */
interface DaemonCall {
  readonly args: readonly string[];
  readonly stdin?: string;
  /** The plugin that is called; without it, the command is. */
  readonly link?: string;
}

let key: string | undefined;

/** Identifies this request to the daemon and, if its reply is lost, to the record. */
export function requestKey(): string {
  key ??= crypto.randomUUID();
  return key;
}

/**
 * Has the daemon run a command, and ends this process with its outcome.
 * @returns if there is no outcome
 */
export async function tryCommand(args: readonly string[]): Promise<void> {
  if (mayHaveDaemon()) await tryDaemon(async () => ({ args }));
}

/**
 * Has the daemon make this plugin call, and ends this process with its outcome. The standard input that this reads is kept for
 * the call in this process.
 * @param link the plugin; undefined for the delegate runner
 * @returns if there is no outcome: whether the daemon may nevertheless have run the call
 */
export async function tryPluginCall(link?: string): Promise<boolean> {
  if (!mayHaveDaemon() || isOfThisProcess(process.env.CNI_NETNS)) return false;
  const input = readInput();
  const begun = await tryDaemon(async () => {
    const bytes = await input;
    const stdin = bytes && textOf(bytes);
    return stdin === undefined ? undefined : { args: [], stdin, ...(link ? { link } : {}) };
  });
  const bytes = await input;
  // Invalid or unreadable input is reported where the call is made.
  if (bytes !== undefined) (await import('../src/plugin/stdio.ts')).keepStdin(bytes);
  return begun;
}

/** A path that resolves differently for every process. */
function isOfThisProcess(path = ''): boolean {
  return path.startsWith('/proc/self/') || path.startsWith('/proc/thread-self/');
}

function mayHaveDaemon(): boolean {
  const { [SERVED_VARIABLE]: served, [FAULT_VARIABLE]: fault } = process.env;
  return !served && !fault && mayListen(runDir());
}

/** @returns if there is no outcome: whether the daemon may nevertheless have begun the call */
async function tryDaemon(prepare: () => Promise<DaemonCall | undefined>): Promise<boolean> {
  const [door, call] = await Promise.all([findDoor(runDir()), prepare()]);
  if (door === undefined || call === undefined) return false;
  const answer = await askDaemon(door, { ...call, key: requestKey(), env: process.env });
  if (answer === 'declined' || answer === 'lost') return answer === 'lost';
  if (answer.stdout) await writeOut(Bun.stdout, answer.stdout);
  if (answer.stderr) await writeOut(Bun.stderr, answer.stderr);
  process.exit(answer.exitCode);
}
