// How does a command find the daemon that runs, ping it, end it, and have it replaced?
import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { isRunning } from '../files/process-stat.ts';
import { startTimer } from '../wait.ts';
import { daemonOf } from './calls.ts';
import {
  callsFileOf,
  type DaemonState,
  type PingReply,
  STATE_PATH,
  STOP_PATH,
  SUCCESSION_PATH,
  socketPathOf,
  wireOf,
} from './protocol.ts';
import { askDaemon, ownPlace } from './who-listens.ts';
import { decodeFrame, PING } from './wire.ts';

const NAP_MS = 20;
/** The daemon gives its requests a minute. */
const STOP_MS = 70_000;
/** Long enough for a daemon to start on a busy host. */
const TAKE_OVER_MS = 20_000;

/** The daemon of a run directory. Without an answer its state is unknown: it is stopped, or hangs. */
interface RunningDaemon {
  readonly socket: string;
  readonly callsFile: string;
  readonly state: DaemonState | undefined;
}

/**
 * Finds the daemon without starting one: behind a socket that a service manager keeps there is no calls file.
 * @returns undefined if none runs, or the one that runs is about to end
 */
export async function findRunning(runDir: string): Promise<RunningDaemon | undefined> {
  const socket = socketPathOf(runDir);
  const callsFile = callsFileThere(socket);
  if (callsFile === undefined) return undefined;
  const response = await askDaemon(socket, STATE_PATH, 'GET');
  if (response === 'absent' || response === 'ending') return undefined;
  const state = response === 'silent' ? undefined : ((await response.json()) as DaemonState);
  return { socket, callsFile, state };
}

/** The calls file of the daemon's socket, if both exist. */
function callsFileThere(socket: string): string | undefined {
  const stat = statSync(wireOf(socket), { throwIfNoEntry: false });
  const file = stat && callsFileOf(socket, stat);
  return file !== undefined && statSync(file, { throwIfNoEntry: false }) ? file : undefined;
}

/**
 * Asks a daemon to finish what it has begun and to end, and waits for that.
 * @returns why it has not ended; undefined once it has
 */
export async function stopRunning({ socket, callsFile }: RunningDaemon): Promise<string | undefined> {
  const began = performance.now();
  // It removes the file when it has answered its last call, and ends after that.
  const daemon = daemonOf(callsFile);
  const response = await askDaemon(socket, STOP_PATH, 'POST');
  if (response === 'silent') return 'it does not respond';
  if (typeof response !== 'string' && !response.ok)
    return 'it is of an earlier build: end its process with SIGTERM';
  for (;;) {
    const runs = daemon && isRunning(daemon);
    // A process of another PID namespace cannot be seen from here.
    if (runs === false || (runs === undefined && daemonOf(callsFile) === undefined)) return undefined;
    if (performance.now() - began > STOP_MS)
      return `requests are still in progress after ${STOP_MS / 1000} s`;
    await Bun.sleep(NAP_MS);
  }
}

/**
 * Tells a daemon that its executable was replaced. One without a service manager starts its successor, which takes the socket over without a
 * failed call; one of a service manager ends.
 * @returns what happened, human-readable; whether a daemon of this executable will serve
 */
export async function succeed(
  daemon: RunningDaemon,
  executable: string,
): Promise<{ readonly ok: boolean; readonly what: string }> {
  const pid = daemon.state?.pid;
  const response = await askDaemon(daemon.socket, SUCCESSION_PATH, 'POST');
  if (response === 'absent' || response === 'ending')
    return { ok: true, what: `the daemon, process ${pid}, has ended` };
  if (response === 'silent' || !response.ok) {
    const why = response === 'silent' ? 'it does not respond' : `it answered ${response.status}`;
    return { ok: false, what: `the daemon, process ${pid}, is of the replaced build (${why}): restart it` };
  }
  const { successor } = (await response.json()) as { successor?: number };
  if (successor === undefined)
    return { ok: true, what: `the daemon, process ${pid}, ends: its service manager starts the next one` };
  const runDir = dirname(daemon.socket);
  for (const began = performance.now(); performance.now() - began < TAKE_OVER_MS; await Bun.sleep(NAP_MS)) {
    const { state } = (await findRunning(runDir)) ?? {};
    if (state?.place?.executable === executable)
      return { ok: true, what: `process ${state.pid} has taken over from the daemon, process ${pid}` };
  }
  return {
    ok: false,
    what: `the daemon, process ${pid}, is of the replaced build: its successor did not listen`,
  };
}

/**
 * `alive`: it answers, and serves this executable. `other build`: it answers, and declines the calls of this executable.
 * `absent`: no daemon listens. `silent`: one listens, and has not answered in time.
 */
export type Ping =
  | { readonly state: 'alive'; readonly reply: PingReply }
  /** A daemon from before pings answers without saying more. */
  | { readonly state: 'other build'; readonly reply?: PingReply }
  | { readonly state: 'absent' | 'silent' };

/**
 * Asks the daemon of a run directory over the socket for calls. Starts no daemon: a socket that a service manager keeps for one
 * counts as absent.
 */
export async function ping(runDir: string, deadlineMs: number): Promise<Ping> {
  const socket = socketPathOf(runDir);
  if (callsFileThere(socket) === undefined) return { state: 'absent' };
  const answer = await sendPing(wireOf(socket), deadlineMs);
  if (answer === 'absent' || answer === 'silent') return { state: answer };
  if (answer === 'declined') return { state: 'other build' };
  return { state: answer.executable === ownPlace().executable ? 'alive' : 'other build', reply: answer };
}

/** One question and one answer on a connection of its own. */
async function sendPing(path: string, deadlineMs: number) {
  const { promise, resolve } = Promise.withResolvers<PingReply | 'declined' | 'absent' | 'silent'>();
  const timer = startTimer(() => resolve('silent'), deadlineMs);
  let received: Uint8Array = new Uint8Array();
  const connecting = Bun.connect({
    unix: path,
    socket: {
      open(socket) {
        // It fits into the buffer of a new socket.
        socket.write(PING);
      },
      data(_, chunk) {
        received = Buffer.concat([received, chunk]);
        const found = decodeFrame(received);
        if (found === undefined) return;
        const frame = found === 'broken' ? undefined : found.frame;
        if (frame?.kind === 'answer') resolve(JSON.parse(frame.reply.stdout) as PingReply);
        else resolve(frame?.kind === 'declined' ? 'declined' : 'silent');
      },
      // It ended before it answered.
      close: () => resolve('absent'),
      connectError: (_, error) =>
        resolve((error as NodeJS.ErrnoException).code === 'EAGAIN' ? 'silent' : 'absent'),
    },
  });
  connecting.catch(() => {});
  const answer = await promise;
  clearTimeout(timer);
  void connecting.then(socket => socket.terminate()).catch(() => {});
  return answer;
}
