// Will the daemon run this command for us?
//
// Most starts of a plugin do nothing but ask the daemon, so this file has to be cheap to load: `node:fs` alone would take 0.7 ms,
// a quarter of the run time of an empty program. It uses Bun's built-ins, which are already loaded.
import { workingDirectory } from '../cni/directories.ts';
import { ownPlace } from './place.ts';
import {
  callsFileOf,
  type Declined,
  isDeclined,
  type Place,
  RUN_PATH,
  type RunAnswer,
  type RunReply,
  type RunRequest,
  SILENCE_MS,
  socketPathOf,
} from './protocol.ts';

/**
 * Outcome of a request: answered, not begun ('declined'), or begun but never to be finished by the daemon ('lost'). In the last
 * two cases the caller makes the call itself, and no daemon makes it later.
 */
export type Answer = RunReply | 'declined' | 'lost';

/** The daemon's socket, and the place that this client asks from. */
export interface DaemonEndpoint {
  readonly socket: string;
  readonly place: Place;
  /** File with the calls that the daemon of this socket has begun. */
  readonly callsFile: string;
}

/** Longest wait for an answer; runtimes give up long before that. */
const ANSWER_DEADLINE_MS = 10 * 60_000;

/** Statuses of a request that the daemon did not run: a request it does not know, one that it declines, one that is too large. */
const DECLINED = [400, 409, 413];

/** Errors of fetch if no process listens, or too many connections are waiting: nothing was sent in these cases. */
const UNHEARD = ['FailedToOpenSocket', 'ConnectionRefused', 'ECONNREFUSED', 'ENOENT', 'EAGAIN'];

/**
 * A quick check whether to look for a daemon at all. Bun reports a modification time in the future for a missing file. A false
 * positive is harmless: {@link findDoor} finds nothing then.
 */
export function mayListen(runDir: string): boolean {
  return Bun.file(socketPathOf(runDir)).lastModified <= Date.now();
}

/**
 * The daemon's socket, if it exists and is trusted: the daemon gets our environment and answers for us, so the socket must belong
 * to root or to our own user.
 */
export async function findDoor(runDir: string): Promise<DaemonEndpoint | undefined> {
  const socket = socketPathOf(runDir);
  try {
    const [found, place] = await Promise.all([Bun.file(socket).stat(), ownPlace()]);
    const isTrusted = found.uid === 0 || found.uid === process.geteuid?.();
    return found.isSocket() && isTrusted
      ? { socket, place, callsFile: callsFileOf(socket, found) }
      : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Asks the daemon to run a command. The daemon is an accelerator, never a dependency: if it does not answer for any reason, the
 * caller runs the command itself, on the same state on disk and under the same key. The attachment's record tells what became of
 * a request whose answer was lost. A daemon that is silent for {@link SILENCE_MS} is not waited for, unless it is working on the
 * request.
 */
export async function askDaemon(
  { socket, place, callsFile }: DaemonEndpoint,
  call: Omit<RunRequest, 'cwd' | 'place'>,
): Promise<Answer> {
  const cwd = workingDirectory();
  // The daemon could not resolve relative paths of the request; here they fail.
  if (cwd === undefined) return 'declined';
  const request: RunRequest = { ...call, cwd, place };
  const line: Line = { callsFile, key: request.key, until: performance.now() + ANSWER_DEADLINE_MS };
  let response: Response | undefined;
  try {
    response = await hear(
      line,
      fetch(`http://catena${RUN_PATH}`, { unix: socket, method: 'POST', body: JSON.stringify(request) }),
    );
    if (DECLINED.includes(response.status)) return 'declined';
    return toAnswer(JSON.parse(await hearBody(line, response)));
  } catch (error) {
    if (error instanceof Silent) {
      // Closes the connection, which cancels the request if the daemon is still working on it.
      void response?.body?.cancel().catch(() => {});
      return error.verdict;
    }
    if (UNHEARD.includes(String((error as { code?: string }).code))) return 'declined';
    const { judgeBreak } = await import('./silence.ts');
    return judgeBreak(callsFile, request.key) === 'declined' ? 'declined' : 'lost';
  }
}

/** A request whose answer is awaited. */
interface Line {
  readonly callsFile: string;
  readonly key: string;
  /** When to stop waiting, whatever the daemon does. */
  readonly until: number;
}

/** The daemon was silent for too long. */
class Silent extends Error {
  readonly verdict: 'declined' | 'lost';

  constructor(verdict: 'declined' | 'lost') {
    super();
    this.verdict = verdict;
  }
}

/**
 * Waits for the next sign of life.
 * @throws Silent if there is none and the daemon is not working on the call
 */
async function hear<T>({ callsFile, key, until }: Line, sign: Promise<T>): Promise<T> {
  const begin = performance.now();
  for (;;) {
    const heard = await inTime(sign);
    if (heard !== undefined) return heard;
    const now = performance.now();
    if (now > until) throw new Silent('lost');
    const { judgeSilence } = await import('./silence.ts');
    const verdict = await judgeSilence(callsFile, key, now - begin);
    if (verdict !== 'wait') throw new Silent(verdict);
  }
}

/** Reads the body: in one piece if its length is known; otherwise in pieces, with signs of life while the work takes long. */
async function hearBody(line: Line, response: Response): Promise<string> {
  if (response.body === null || response.headers.has('content-length')) return hear(line, response.text());
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    if (performance.now() > line.until) throw new Silent('lost');
    const { done, value } = await hear(line, reader.read());
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
  }
}

function toAnswer(said: RunAnswer | Declined): Answer {
  if (isDeclined(said)) return said.begun ? 'lost' : 'declined';
  return typeof said.exitCode === 'number' ? said : 'lost';
}

/** The value, or undefined if it takes too long. An AbortSignal would cost 0.2 ms; an unreferenced timer costs nothing. */
function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  setTimeout(() => late.resolve(undefined), SILENCE_MS).unref();
  return Promise.race([answer, late.promise]);
}
