// Which daemon listens on a socket, what does it say, and how does another one take its place?
import { lstatSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { isRunning } from '../files/process-stat.ts';
import { findFlockHolder, holdFlock } from '../sys/flock.ts';
import { startTimer } from '../wait.ts';
import { daemonOf } from './calls.ts';
import {
  callsFileOf,
  type DaemonState,
  HANDOVER_PATH,
  type PingReply,
  type ProcessPlace,
  STATE_PATH,
  STOP_PATH,
  SUCCESSION_PATH,
  seatFileOf,
  socketPathOf,
  wireOf,
} from './protocol.ts';
import { decodeFrame, PING } from './wire.ts';

/** The right to listen on a socket: a lock on a file next to it. The kernel releases it however the process ends. */
export interface Seat {
  /** Whether the locked file is still the one that another daemon would lock. */
  holds(): boolean;
  release(): void;
}

/** Another daemon has the socket. */
export class SeatTaken extends Error {}

/** Longest wait for a daemon's answer. These requests do not wait in its queue. */
const ANSWER_MS = 2_000;
/** A daemon that is starting has the lock before it listens. */
const START_MS = 2_000;
/** A daemon that hands over releases the socket at once, but another one may take it first. */
const HANDOVER_MS = 10_000;
const NAP_MS = 20;

/**
 * Acquires the seat of a socket.
 * @param replace asks a running daemon to hand over instead of giving up
 * @throws SeatTaken if another daemon has the seat
 */
export async function takeSeat(socket: string, replace: boolean): Promise<Seat> {
  mkdirSync(dirname(socket), { recursive: true, mode: 0o700 });
  const began = performance.now();
  for (;;) {
    const seat = trySeat(socket);
    const holder = seat ? undefined : holderOf(socket);
    const listener = await whoListens(socket);
    // Daemons of earlier builds listen without the lock.
    if (seat && listener === undefined) return seat;
    seat?.release();
    const elapsed = performance.now() - began;
    if (listener === 'silent') throw taken(socket, holder, 'and does not respond: stop it, then start again');
    if (listener === undefined || listener === 'ending') {
      if (elapsed > START_MS) throw taken(socket, holder, 'but does not listen: stop it, then start again');
    } else if (!replace) {
      throw taken(
        socket,
        holder ?? `process ${listener}`,
        'already: stop it first, or replace it with --replace',
      );
    } else if (elapsed > HANDOVER_MS || !(await askToHandOver(socket))) {
      throw taken(
        socket,
        holder ?? `process ${listener}`,
        'and does not hand over: stop it, then start again',
      );
    }
    await Bun.sleep(NAP_MS);
  }
}

/**
 * Acquires the seat of a socket whose daemon cannot be asked to hand over, such as the gRPC socket.
 * @throws SeatTaken if another daemon keeps it
 */
export async function awaitSeat(socket: string): Promise<Seat> {
  mkdirSync(dirname(socket), { recursive: true, mode: 0o700 });
  const began = performance.now();
  for (;;) {
    const seat = trySeat(socket);
    if (seat) return seat;
    if (performance.now() - began > START_MS) throw taken(socket, holderOf(socket), 'already: stop it first');
    await Bun.sleep(NAP_MS);
  }
}

/** Acquires the seat without waiting; undefined if another daemon has it. */
export function trySeat(socket: string): Seat | undefined {
  const file = seatFileOf(socket);
  const release = holdFlock(file, { mode: 0o600 });
  if (release === undefined) return undefined;
  const { ino } = statSync(file);
  return { release, holds: () => statSync(file, { throwIfNoEntry: false })?.ino === ino };
}

/**
 * The id of the process that answers on a socket; `ending` if it ended with the request, as one that was just killed; undefined
 * if no process listens.
 */
export async function whoListens(socket: string): Promise<number | 'silent' | 'ending' | undefined> {
  // A symbolic link leads to a service manager's socket: asking there would start a daemon.
  if (!lstatSync(socket, { throwIfNoEntry: false })?.isSocket()) return undefined;
  const response = await askDaemon(socket, STATE_PATH, 'GET');
  if (typeof response === 'string') return response === 'absent' ? undefined : response;
  const { pid } = ((await response.json().catch(() => undefined)) ?? {}) as { pid?: unknown };
  return typeof pid === 'number' ? pid : 'silent';
}

async function askToHandOver(socket: string): Promise<boolean> {
  const response = await askDaemon(socket, HANDOVER_PATH, 'POST');
  if (typeof response !== 'string') return response.status === 200;
  // If the daemon has ended instead, that is just as good.
  const listener = await whoListens(socket);
  return listener === undefined || listener === 'ending';
}

/** The process that has the seat of a socket, human-readable. */
export function holderOf(socket: string): string | undefined {
  const stat = statSync(seatFileOf(socket), { throwIfNoEntry: false });
  return stat && findFlockHolder(stat);
}

function taken(socket: string, holder: string | undefined, state: string): SeatTaken {
  return new SeatTaken(`Cannot listen on "${socket}": ${holder ?? 'another daemon'} has it ${state}`);
}

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
export async function stopRunning(
  { socket, callsFile }: RunningDaemon,
  deadlineMs: number,
): Promise<string | undefined> {
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
    if (performance.now() - began > deadlineMs)
      return `requests are still in progress after ${deadlineMs / 1000} s`;
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
  deadlineMs: number,
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
  for (const began = performance.now(); performance.now() - began < deadlineMs; await Bun.sleep(NAP_MS)) {
    const { state } = (await findRunning(runDir)) ?? {};
    if (state?.place?.executable === executable)
      return { ok: true, what: `process ${state.pid} has taken over from the daemon, process ${pid}` };
  }
  return {
    ok: false,
    what: `the daemon, process ${pid}, is of the replaced build: its successor did not listen`,
  };
}

/** `ending`: the process ended with the request, as one that was just killed. */
export async function askDaemon(
  socket: string,
  path: string,
  method: 'GET' | 'POST',
): Promise<Response | 'absent' | 'ending' | 'silent'> {
  try {
    const signal = AbortSignal.timeout(ANSWER_MS);
    return await fetch(`http://catena${path}`, { unix: socket, method, signal });
  } catch (error) {
    const { code, name } = error as { code?: unknown; name?: string };
    if (code === 'ECONNRESET') return 'ending';
    return name === 'TimeoutError' || code === 'EAGAIN' ? 'silent' : 'absent';
  }
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
  const [answer, place] = await Promise.all([sendPing(wireOf(socket), deadlineMs), ownPlace()]);
  if (answer === 'absent' || answer === 'silent') return { state: answer };
  if (answer === 'declined') return { state: 'other build' };
  return { state: answer.executable === place.executable ? 'alive' : 'other build', reply: answer };
}

/** One question and one answer on a connection of its own. */
async function sendPing(
  path: string,
  deadlineMs: number,
): Promise<PingReply | 'declined' | 'absent' | 'silent'> {
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

/** The executable and the namespaces of this process. */
export async function ownPlace(): Promise<ProcessPlace> {
  const [executable, network, mount] = await Promise.all([
    identityOf('/proc/self/exe'),
    identityOf('/proc/self/ns/net'),
    identityOf('/proc/self/ns/mnt'),
  ]);
  return { executable, network, mount };
}

async function identityOf(path: string): Promise<string> {
  const { dev, ino } = await Bun.file(path).stat();
  return `${dev}:${ino}`;
}
