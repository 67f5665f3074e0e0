// Will the daemon run this command for us?
import { ownPlace, RUN_PATH, type RunReply, type RunRequest, socketPathOf } from './protocol.ts';

/** What became of a request: answered, not taken, or taken and then never heard of again. */
export type Answer = RunReply | 'declined' | 'lost';

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
 * Has the daemon run a command. It is an accelerator, never a dependency: whatever keeps it from answering, the caller
 * runs the command itself, on the same state on disk and under the same key: what became of a request whose answer was
 * lost, the record of the attachment tells.
 * @param runDir where its socket would be
 */
export async function askDaemon(runDir: string, call: Omit<RunRequest, 'cwd' | 'place'>): Promise<Answer> {
  const socket = socketPathOf(runDir);
  const request: RunRequest = { ...call, cwd: process.cwd(), place: ownPlace() };
  try {
    const response = await fetch(`http://catena${RUN_PATH}`, {
      unix: socket,
      method: 'POST',
      body: JSON.stringify(request),
      signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
    });
    if (DECLINED.includes(response.status)) return 'declined';
    const reply = (await response.json()) as RunReply;
    return typeof reply.exitCode === 'number' ? reply : 'lost';
  } catch (error) {
    return UNHEARD.includes(String((error as { code?: string }).code)) ? 'declined' : 'lost';
  }
}
