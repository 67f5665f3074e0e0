// How does a call get the daemon's outcome, if there is a daemon?
//
// Part of every start: see main.ts.
import { CORE_NAME, ON_DEMAND_SUFFIX } from '../src/chain/config/core-name.ts';
import { runDir } from '../src/cni/directories.ts';
import { askDaemon, findDoor, mayListen } from '../src/daemon/client.ts';
import {
  JUDGED,
  SERVED_VARIABLE,
  START_AGAIN_MS,
  socketPathOf,
  startNoteOf,
  UNANSWERED_VARIABLE,
} from '../src/daemon/protocol.ts';
import { readInput, textOf, writeOut } from '../src/plugin/early-stdio.ts';
import { FAULT_VARIABLE } from '../src/sys/fault-variable.ts';

/** What the daemon is asked to run. */
interface DaemonCall {
  readonly args: readonly string[];
  readonly stdin?: string;
  /** The plugin that is called; without it, the command is. */
  readonly link?: string;
}

/** The front's request to the daemon, whose key this process uses as well; undefined if there was none. */
const unanswered = takeUnanswered();

let key = unanswered?.key;

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
  if (unanswered !== undefined) await mayHaveBegun(unanswered);
  else if (await mayHaveDaemon()) await tryDaemon(async () => ({ args }));
}

/**
 * Has the daemon make this plugin call, and ends this process with its outcome. The standard input that this reads is kept for
 * the call in this process.
 * @param link the plugin; undefined for the delegate runner
 * @returns if there is no outcome: whether the daemon may nevertheless have run the call
 */
export async function tryPluginCall(link?: string): Promise<boolean> {
  if (unanswered !== undefined) return mayHaveBegun(unanswered);
  if (isOfThisProcess(process.env.CNI_NETNS) || !(await mayHaveDaemon())) return false;
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

/**
 * Answers the front's question what the silence of a daemon means, by the exit status of this process.
 * @param args the calls file, the key of the call, and the milliseconds of silence
 */
export async function judgeForFront([file = '', key = '', silentMs = '']: readonly string[]): Promise<never> {
  const { judgeSilence } = await import('../src/daemon/silence.ts');
  process.exit(JUDGED[await judgeSilence(file, key, Number(silentMs))]);
}

/** What the front found out about a request that was not answered. */
interface Unanswered {
  readonly verdict: string;
  readonly key: string;
  readonly callsFile: string;
}

/** Read once, and removed: children of this process make calls of their own. */
function takeUnanswered(): Unanswered | undefined {
  const { [UNANSWERED_VARIABLE]: told } = process.env;
  delete process.env[UNANSWERED_VARIABLE];
  const [, verdict = '', key = '', callsFile = ''] =
    /^(declined|lost|broken) (\S+) ?(.*)$/s.exec(told ?? '') ?? [];
  return verdict === '' ? undefined : { verdict, key, callsFile };
}

/** Whether the daemon may have begun the request. It never continues it. */
async function mayHaveBegun({ verdict, key, callsFile }: Unanswered): Promise<boolean> {
  if (verdict !== 'broken') return verdict === 'lost';
  const { judgeBreak } = await import('../src/daemon/silence.ts');
  return judgeBreak(callsFile, key) !== 'declined';
}

/** A path that resolves differently for every process. */
function isOfThisProcess(path = ''): boolean {
  return path.startsWith('/proc/self/') || path.startsWith('/proc/thread-self/');
}

async function mayHaveDaemon(): Promise<boolean> {
  const { [SERVED_VARIABLE]: served, [FAULT_VARIABLE]: fault } = process.env;
  if (served || fault) return false;
  if (mayListen(runDir())) return true;
  await startIfWanted();
  return false;
}

/** No daemon runs. The call does not wait for the one that this starts. Few hosts have the file, and then the note is mostly recent. */
async function startIfWanted(): Promise<void> {
  // Without fronts, the program has another name for each plugin.
  const directory = process.execPath.slice(0, process.execPath.lastIndexOf('/') + 1);
  const file = `${directory}${CORE_NAME}${ON_DEMAND_SUFFIX}`;
  const exists = Bun.file(file).lastModified <= Date.now();
  const started = Bun.file(startNoteOf(socketPathOf(runDir()))).lastModified;
  // Bun reports the present or a later time for a missing file.
  if (!exists || (started < Date.now() && Date.now() - started < START_AGAIN_MS)) return;
  const { startOnDemand } = await import('../src/daemon/on-demand.ts');
  startOnDemand(file, runDir());
}

/** @returns if there is no outcome: whether the daemon may nevertheless have begun the call */
async function tryDaemon(prepare: () => Promise<DaemonCall | undefined>): Promise<boolean> {
  const [door, call] = await Promise.all([findDoor(runDir()), prepare()]);
  if (door === undefined || call === undefined) return false;
  const answer = await askDaemon(door, { ...call, key: requestKey(), env: process.env });
  if (answer === 'absent') await startIfWanted();
  if (answer === 'absent' || answer === 'declined' || answer === 'lost') return answer === 'lost';
  if (answer.stdout) await writeOut(Bun.stdout, answer.stdout);
  if (answer.stderr) await writeOut(Bun.stderr, answer.stderr);
  process.exit(answer.exitCode);
}
