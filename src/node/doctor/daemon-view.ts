// Which daemon answers on this node's socket?
import { lstatSync, statSync } from 'node:fs';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { type Place, seatFileOf, socketPathOf } from '../../daemon/protocol.ts';
import { ownPlace } from '../../daemon/who-listens.ts';
import { findFlockHolder } from '../../sys/flock.ts';
import { isHidden } from './readable.ts';

/** State of the daemon. */
export type DaemonView =
  | { readonly kind: 'none' }
  /** This user may not look for it, or not connect to it. */
  | { readonly kind: 'hidden'; readonly socket: string }
  /** The daemon has ended and left its socket. */
  | { readonly kind: 'gone'; readonly socket: string }
  /** The daemon does not answer in time. */
  | { readonly kind: 'silent'; readonly socket: string; readonly holder?: string | undefined }
  | {
      readonly kind: 'answers';
      readonly socket: string;
      readonly state: DaemonState;
      /** The place of this command, which is also that of other clients here. */
      readonly here: Place;
    };

/** What a daemon reports about itself; an earlier build reports less. */
export type DaemonState = Partial<AnswerOf<'DaemonState'>>;

/** The same time that a client waits. */
const ANSWER_MS = 1_000;

/** Examines the daemon of a run directory. */
export async function viewDaemon(runDir: string): Promise<DaemonView> {
  const socket = socketPathOf(runDir);
  if (isHidden(socket)) return { kind: 'hidden', socket };
  if (!isSocket(socket)) return { kind: 'none' };
  try {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const response = await fetch('http://catena/v1/state', { unix: socket, signal });
    return { kind: 'answers', socket, state: (await response.json()) as DaemonState, here: await ownPlace() };
  } catch (error) {
    const isLate = (error as Error).name === 'TimeoutError' || (error as { code?: string }).code === 'EAGAIN';
    return isLate ? { kind: 'silent', socket, holder: holderOf(socket) } : { kind: 'gone', socket };
  }
}

function holderOf(socket: string): string | undefined {
  const lock = statSync(seatFileOf(socket), { throwIfNoEntry: false });
  return lock && findFlockHolder(lock);
}

/** A symbolic link leads to a service manager's socket, and asking there would start a daemon. */
function isSocket(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSocket() ?? false;
}
