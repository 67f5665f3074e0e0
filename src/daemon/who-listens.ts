// Which daemon listens on a socket, and how does another one take its place?
import { lstatSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { findFlockHolder, holdFlock } from '../sys/flock.ts';
import { HANDOVER_PATH, type ProcessPlace, STATE_PATH, seatFileOf } from './protocol.ts';

/** The right to listen on a socket: a lock on a file next to it. The kernel releases it however the process ends. */
export interface Seat {
  /** Whether the locked file is still the one that another daemon would lock. */
  holds(): boolean;
  release(): void;
}

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
    const who = holder ?? (typeof listener === 'number' ? `process ${listener}` : undefined);
    if (listener === 'silent') throw taken(socket, who, 'and does not respond: stop it, then start again');
    if (listener === undefined || listener === 'ending') {
      if (elapsed > START_MS) throw taken(socket, who, 'but does not listen: stop it, then start again');
    } else if (!replace) throw taken(socket, who, 'already: stop it first, or replace it with --replace');
    else if (elapsed > HANDOVER_MS || !(await askToHandOver(socket)))
      throw taken(socket, who, 'and does not hand over: stop it, then start again');
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

/** The executable and the namespaces of this process. */
export function ownPlace(): ProcessPlace {
  return { executable: identityOf('/proc/self/exe'), ...namespacesOf('self') };
}

/** The namespaces in which a process looks paths and devices up. @throws the system error if this user may not see them */
export function namespacesOf(process: 'self' | '1'): Pick<ProcessPlace, 'network' | 'mount'> {
  return { network: identityOf(`/proc/${process}/ns/net`), mount: identityOf(`/proc/${process}/ns/mnt`) };
}

/** Device and inode of a file. @throws the system error */
export function identityOf(path: string): string {
  const { dev, ino } = statSync(path);
  return `${dev}:${ino}`;
}
