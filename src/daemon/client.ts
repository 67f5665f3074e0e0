// Will the daemon run this command for us?
//
// Where all names are the Bun program, most starts of a plugin do nothing but ask the daemon, so this file has to be cheap to load:
// `node:fs` alone would take 0.7 ms, a quarter of the run time of an empty program. It uses Bun's built-ins, which are already
// loaded. plugins/front/front.c does the same without Bun.
import type { Socket } from 'bun';
import { workingDirectory } from '../cni/directories.ts';
import { ownPlace } from './place.ts';
import {
  ANSWER_DEADLINE_MS,
  callsFileOf,
  type Place,
  type RunReply,
  type RunRequest,
  SILENCE_MS,
  socketPathOf,
  wireOf,
} from './protocol.ts';
import { decodeFrame, encodeRequest } from './wire.ts';

/**
 * Outcome of a request: answered, not begun ('declined'), or begun but never to be finished by the daemon ('lost'). In the last
 * two cases the caller makes the call itself, and no daemon makes it later.
 */
export type Answer = RunReply | 'declined' | 'lost';

/** Outcome of {@link askDaemon}. `absent`: no process listens on the socket; otherwise as 'declined'. */
export type Asked = Answer | 'absent';

/** The daemon's socket, and the place that this client asks from. */
export interface DaemonEndpoint {
  /** The one for people; calls are sent to the one next to it. */
  readonly socket: string;
  readonly place: Place;
  /** File with the calls that the daemon of this socket has begun. */
  readonly callsFile: string;
}

/**
 * A quick check whether to look for a daemon at all. Bun reports a modification time in the future for a missing file. A false
 * positive is harmless: {@link findDoor} finds nothing then.
 */
export function mayListen(runDir: string): boolean {
  return Bun.file(wireOf(socketPathOf(runDir))).lastModified <= Date.now();
}

/**
 * The daemon's socket, if it exists and is trusted: the daemon gets our environment and answers for us, so the socket must belong
 * to root or to our own user.
 */
export async function findDoor(runDir: string): Promise<DaemonEndpoint | undefined> {
  const socket = socketPathOf(runDir);
  try {
    const [found, place] = await Promise.all([Bun.file(wireOf(socket)).stat(), ownPlace()]);
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
): Promise<Asked> {
  const cwd = workingDirectory();
  // The daemon could not resolve relative paths of the request; here they fail.
  const request = cwd === undefined ? undefined : encodeRequest({ ...call, cwd, place });
  if (request === undefined) return 'declined';
  const line = await connect(wireOf(socket));
  if (line === 'refused') return 'absent';
  if (line === undefined) return 'declined';
  try {
    // Sockets appear by rename and never return: if the name still means the same one, it is the one that was connected.
    if ((await findCallsFile(socket)) !== callsFile) return 'declined';
    // A daemon has its calls file before its socket gets a name. Without one, a service manager starts the daemon now.
    if (!(await Bun.file(callsFile).exists())) return 'declined';
    line.send(request);
    return await hear(line, callsFile, call.key);
  } finally {
    // If the daemon is still working on the request, this cancels it.
    line.close();
  }
}

/** A connection to the daemon. */
interface Line {
  /** What the daemon has answered; 'broken' if the connection ended without an answer, or the daemon sent something else. */
  readonly answer: Answer | 'broken' | undefined;
  /** Whether the daemon has the whole request, and so may begin it. */
  readonly isSent: boolean;
  /**
   * Resolves to true at the next sign of life, such as bytes that the daemon takes, or when there is an answer; to undefined after
   * {@link SILENCE_MS}.
   */
  next(): Promise<true | undefined>;
  send(bytes: Uint8Array): void;
  close(): void;
}

/** @returns `refused` if no process listens, undefined if too many connections are waiting */
async function connect(path: string): Promise<Line | 'refused' | undefined> {
  let unsent: Uint8Array = new Uint8Array();
  let received: Uint8Array = new Uint8Array();
  let answer: Line['answer'];
  let heard = Promise.withResolvers<true>();
  const tell = (): void => heard.resolve(true);
  const breakOff = (): void => {
    answer ??= 'broken';
    tell();
  };
  const flush = (socket: Socket): void => {
    if (unsent.length > 0) unsent = unsent.subarray(Math.max(socket.write(unsent), 0));
  };
  const connecting = Bun.connect({
    unix: path,
    socket: {
      data(_, chunk) {
        received = received.length ? Buffer.concat([received, chunk]) : Uint8Array.from(chunk);
        let one = decodeFrame(received);
        for (; one !== undefined && one !== 'broken' && answer === undefined; one = decodeFrame(received)) {
          received = received.subarray(one.length);
          if (one.frame.kind === 'answer') answer = one.frame.reply;
          else if (one.frame.kind === 'declined') answer = one.frame.begun ? 'lost' : 'declined';
        }
        if (one === 'broken') answer ??= 'broken';
        tell();
      },
      // The daemon takes what is sent: that, too, is a sign of life.
      drain(socket) {
        flush(socket);
        tell();
      },
      close: breakOff,
      error: breakOff,
      end: breakOff,
      connectError: breakOff,
    },
  });
  const isRefused = (error: unknown) => (error as { code?: string }).code === 'ECONNREFUSED';
  const socket = await inTime(
    connecting.catch(error => (isRefused(error) ? ('refused' as const) : undefined)),
  );
  if (socket === 'refused') return socket;
  if (socket === undefined) {
    void connecting.then(late => late.terminate()).catch(() => {});
    return undefined;
  }
  return {
    get answer() {
      return answer;
    },
    get isSent() {
      return unsent.length === 0;
    },
    async next() {
      const sign = await inTime(heard.promise);
      if (sign) heard = Promise.withResolvers();
      return sign;
    },
    send(bytes) {
      unsent = bytes;
      flush(socket);
    },
    close: () => socket.terminate(),
  };
}

async function findCallsFile(socket: string): Promise<string | undefined> {
  try {
    return callsFileOf(socket, await Bun.file(wireOf(socket)).stat());
  } catch {
    return undefined;
  }
}

/** Longer than one turn of the event loop, which reads what has arrived. */
const READ_MS = 10;

/** Waits for the answer, as long as the daemon is alive or works on the call. */
async function hear(line: Line, callsFile: string, key: string): Promise<Answer> {
  const begin = performance.now();
  for (let heard = begin; ; ) {
    const sign = await line.next();
    const now = performance.now();
    if (line.answer === 'broken') {
      // A request that has not arrived whole is never begun.
      if (!line.isSent) return 'declined';
      const { judgeBreak } = await import('./silence.ts');
      return judgeBreak(callsFile, key) === 'declined' ? 'declined' : 'lost';
    }
    if (line.answer !== undefined) return line.answer;
    if (now - begin > ANSWER_DEADLINE_MS) return 'lost';
    if (sign) {
      heard = now;
      continue;
    }
    if (!line.isSent) return 'declined';
    const { judgeSilence } = await import('./silence.ts');
    const verdict = await judgeSilence(callsFile, key, now - heard);
    if (verdict === 'wait') continue;
    // An answered call is no longer noted as begun, and its answer may wait in the socket while this process was busy.
    await new Promise(resolve => setTimeout(resolve, READ_MS));
    return line.answer === undefined || line.answer === 'broken' ? verdict : line.answer;
  }
}

/** The value, or undefined if it takes too long. An AbortSignal would cost 0.2 ms; an unreferenced timer costs nothing. */
function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  setTimeout(() => late.resolve(undefined), SILENCE_MS).unref();
  return Promise.race([answer, late.promise]);
}
