// Will the daemon run this command for us?
import { ownPlace, RUN_PATH, type RunReply, type RunRequest, socketPathOf } from './protocol.ts';

/** Longest wait for an answer; runtimes give up long before. */
const ANSWER_DEADLINE_MS = 10 * 60_000;

/** The daemon is of another version, in another namespace, or on its way out. */
const DECLINED = 409;

/**
 * Has the daemon run a command. It is an accelerator, never a dependency: whatever keeps it from answering, the caller
 * runs the command itself, on the same state on disk and under the same key: what became of a request whose answer was
 * lost, the record of the attachment tells.
 * @param runDir where its socket would be
 * @returns undefined when the caller is to run the command itself
 */
export async function askDaemon(
  runDir: string,
  call: Pick<RunRequest, 'args' | 'env' | 'stdin' | 'key'>,
): Promise<RunReply | undefined> {
  const socket = socketPathOf(runDir);
  const request: RunRequest = { ...call, cwd: process.cwd(), place: ownPlace() };
  try {
    const response = await fetch(`http://catena${RUN_PATH}`, {
      unix: socket,
      method: 'POST',
      body: JSON.stringify(request),
      signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
    });
    if (response.status === DECLINED) return undefined;
    return (await response.json()) as RunReply;
  } catch {
    return undefined;
  }
}
