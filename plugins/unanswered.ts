// What became of the front's request to the daemon, if the Bun program was executed after all?
//
// Part of every start: see main.ts. Only the front asks a daemon. Without one, as built without a C compiler, there is no request.
import { CORE_NAME, ON_DEMAND_SUFFIX, runDir } from '../src/cni/directories.ts';
import {
  JUDGED,
  START_AGAIN_MS,
  socketPathOf,
  startNoteOf,
  UNANSWERED_VARIABLE,
} from '../src/daemon/protocol.ts';

/** Read once, and removed: children of this process make calls of their own. */
const { [UNANSWERED_VARIABLE]: told = '' } = process.env;
delete process.env[UNANSWERED_VARIABLE];
const [, verdict, key, callsFile = ''] = /^(\w+) (\S*) ?(.*)$/s.exec(told) ?? [];

/** Identifies the request to the daemon and, if its reply is lost, to the record. */
export function requestKey(): string {
  return key || crypto.randomUUID();
}

/**
 * Whether the daemon may have begun the call of this process, which it never continues. Where no daemon listens, this starts one if it is
 * to be started by calls.
 */
export async function mayHaveBegun(): Promise<boolean> {
  if (verdict === 'absent') await startIfWanted();
  if (verdict !== 'broken' || !key) return verdict === 'lost';
  const { judgeBreak } = await import('../src/daemon/calls.ts');
  return judgeBreak(callsFile, key) !== 'declined';
}

/**
 * Answers the front's question what the silence of a daemon means, by the exit status of this process.
 * @param args the calls file, the key of the call, and the milliseconds of silence
 */
export async function judgeForFront([file = '', key = '', silentMs = '']: readonly string[]): Promise<never> {
  const { judgeSilence } = await import('../src/daemon/calls.ts');
  process.exit(JUDGED[await judgeSilence(file, key, Number(silentMs))]);
}

/** The call does not wait for the daemon that this starts. Few hosts have the file, and then the note is mostly recent. */
async function startIfWanted(): Promise<void> {
  const directory = process.execPath.slice(0, process.execPath.lastIndexOf('/') + 1);
  const file = `${directory}${CORE_NAME}${ON_DEMAND_SUFFIX}`;
  const exists = Bun.file(file).lastModified <= Date.now();
  const started = Bun.file(startNoteOf(socketPathOf(runDir()))).lastModified;
  // Bun reports the present or a later time for a missing file.
  if (!exists || (started < Date.now() && Date.now() - started < START_AGAIN_MS)) return;
  const { startOnDemand } = await import('../src/daemon/on-demand.ts');
  startOnDemand(file, runDir());
}
