// Does a daemon answer on this socket?

import { startTimer } from '../wait.ts';
import { findDoor } from './client.ts';
import { type PingReply, wireOf } from './protocol.ts';
import { callsFileThere } from './running.ts';
import { decodeFrame, PING } from './wire.ts';

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
  const door = await findDoor(runDir);
  if (door === undefined || callsFileThere(door.socket) === undefined) return { state: 'absent' };
  const answer = await ask(wireOf(door.socket), deadlineMs);
  if (answer === 'absent' || answer === 'silent') return { state: answer };
  if (answer === 'declined') return { state: 'other build' };
  return { state: answer.executable === door.place.executable ? 'alive' : 'other build', reply: answer };
}

/** One question and one answer on a connection of its own. */
async function ask(path: string, deadlineMs: number): Promise<PingReply | 'declined' | 'absent' | 'silent'> {
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
