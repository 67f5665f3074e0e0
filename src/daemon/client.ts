// Will the daemon run this command for us?
//
// Asking is all that most starts of a link do, so it costs as little as can be: `node:fs` alone would take 0.7 ms, a quarter
// of what an empty program takes. What Bun has itself is there already.
import { ownPlace } from './place.ts';
import { type Place, RUN_PATH, type RunReply, type RunRequest, socketPathOf } from './protocol.ts';

/** What became of a request: answered, not taken, or taken and then never heard of again. */
export type Answer = RunReply | 'declined' | 'lost';

/** Where a daemon may be asked, and from which place. */
export interface Door {
  readonly socket: string;
  readonly place: Place;
}

/** Longest wait for an answer; runtimes give up long before. */
const ANSWER_DEADLINE_MS = 10 * 60_000;

/**
 * What is answered instead of running anything: no request that this daemon knows (400), none for it (409: another version
 * or namespace), more than it takes (413).
 */
const DECLINED = [400, 409, 413];

/** What fetch says when nobody listens: nothing was sent then. */
const UNHEARD = ['FailedToOpenSocket', 'ConnectionRefused', 'ECONNREFUSED', 'ENOENT'];

/**
 * Whether it is worth to look for a daemon, told at once: what is not there was last changed in a time to come, says Bun.
 * It may be wrong the other way round; then {@link findDoor} finds nothing.
 */
export function mayListen(runDir: string): boolean {
  return Bun.file(socketPathOf(runDir)).lastModified <= Date.now();
}

/**
 * The daemon's socket, if one is there that nobody else made: who answers gets our environment and may answer for us.
 * What root made is root's to answer.
 */
export async function findDoor(runDir: string): Promise<Door | undefined> {
  const socket = socketPathOf(runDir);
  try {
    const [found, place] = await Promise.all([Bun.file(socket).stat(), ownPlace()]);
    const isTrusted = found.uid === 0 || found.uid === process.geteuid?.();
    return found.isSocket() && isTrusted ? { socket, place } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Has the daemon run a command. It is an accelerator, never a dependency: whatever keeps it from answering, the caller
 * runs the command itself, on the same state on disk and under the same key: what became of a request whose answer was
 * lost, the record of the attachment tells.
 */
export async function askDaemon(
  { socket, place }: Door,
  call: Omit<RunRequest, 'cwd' | 'place'>,
): Promise<Answer> {
  const request: RunRequest = { ...call, cwd: process.cwd(), place };
  try {
    const response = await inTime(
      fetch(`http://catena${RUN_PATH}`, { unix: socket, method: 'POST', body: JSON.stringify(request) }),
    );
    if (response === undefined) return 'lost';
    if (DECLINED.includes(response.status)) return 'declined';
    const reply = (await inTime(response.json())) as RunReply | undefined;
    return typeof reply?.exitCode === 'number' ? reply : 'lost';
  } catch (error) {
    return UNHEARD.includes(String((error as { code?: string }).code)) ? 'declined' : 'lost';
  }
}

/** Undefined when it takes too long. An AbortSignal would cost 0.2 ms; a timer that holds nobody up costs nothing. */
function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  setTimeout(() => late.resolve(undefined), ANSWER_DEADLINE_MS).unref();
  return Promise.race([answer, late.promise]);
}
