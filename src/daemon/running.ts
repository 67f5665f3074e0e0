// Which daemon runs for a run directory, what does it say about itself, and how is it asked to end?
import { readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { isRunning } from '../files/process-id.ts';
import { daemonIn } from './calls-file.ts';
import {
  callsFileOf,
  type DaemonState,
  STATE_PATH,
  STOP_PATH,
  SUCCESSION_PATH,
  socketPathOf,
  wireOf,
} from './protocol.ts';

/** The daemon of a run directory. Without an answer its state is unknown: it is stopped, or hangs. */
export interface RunningDaemon {
  readonly socket: string;
  readonly callsFile: string;
  readonly state: DaemonState | undefined;
}

/** Longest wait for an answer. These requests do not wait in the daemon's queue. */
const ANSWER_MS = 2_000;
const NAP_MS = 20;

/**
 * Finds the daemon without starting one: behind a socket that a service manager keeps there is no calls file.
 * @returns undefined if none runs, or the one that runs is about to end
 */
export async function findRunning(runDir: string): Promise<RunningDaemon | undefined> {
  const socket = socketPathOf(runDir);
  const callsFile = callsFileThere(socket);
  if (callsFile === undefined) return undefined;
  const response = await ask(socket, STATE_PATH, 'GET');
  if (response === 'absent') return undefined;
  const state = response === 'silent' ? undefined : ((await response.json()) as DaemonState);
  return { socket, callsFile, state };
}

/** The calls file of the daemon's socket, if both exist. */
export function callsFileThere(socket: string): string | undefined {
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
  const daemon = readDaemon(callsFile);
  const response = await ask(socket, STOP_PATH, 'POST');
  if (response === 'silent') return 'it does not respond';
  if (response !== 'absent' && !response.ok) return 'it is of an earlier build: end its process with SIGTERM';
  for (;;) {
    const runs = daemon && isRunning(daemon);
    // A process of another PID namespace cannot be seen from here.
    if (runs === false || (runs === undefined && readDaemon(callsFile) === undefined)) return undefined;
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
  const response = await ask(daemon.socket, SUCCESSION_PATH, 'POST');
  if (response === 'absent') return { ok: true, what: `the daemon, process ${pid}, has ended` };
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

function readDaemon(callsFile: string): ReturnType<typeof daemonIn> | undefined {
  try {
    return daemonIn(readFileSync(callsFile));
  } catch {
    return undefined;
  }
}

async function ask(
  socket: string,
  path: string,
  method: 'GET' | 'POST',
): Promise<Response | 'absent' | 'silent'> {
  try {
    return await fetch(`http://catena${path}`, {
      unix: socket,
      method,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
  } catch (error) {
    const { code, name } = error as { code?: unknown; name?: string };
    return name === 'TimeoutError' || code === 'EAGAIN' ? 'silent' : 'absent';
  }
}
