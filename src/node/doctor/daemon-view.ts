// Which daemon answers on this node's socket?
import { lstatSync } from 'node:fs';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { isObject } from '../../cni/json.ts';
import { type Place, STATE_PATH, socketPathOf } from '../../daemon/protocol.ts';
import { askDaemon, holderOf, ownPlace } from '../../daemon/who-listens.ts';
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

/** Examines the daemon of a run directory. */
export async function viewDaemon(runDir: string): Promise<DaemonView> {
  const socket = socketPathOf(runDir);
  if (isHidden(socket)) return { kind: 'hidden', socket };
  if (!isSocket(socket)) return { kind: 'none' };
  const response = await askDaemon(socket, STATE_PATH, 'GET');
  if (response === 'absent' || response === 'ending') return { kind: 'gone', socket };
  const state: unknown = response === 'silent' ? undefined : await response.json().catch(() => undefined);
  if (!isObject(state)) return { kind: 'silent', socket, holder: holderOf(socket) };
  return { kind: 'answers', socket, state, here: await ownPlace() };
}

/** A symbolic link leads to a service manager's socket, and asking there would start a daemon. */
function isSocket(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSocket() ?? false;
}
