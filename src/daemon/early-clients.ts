// What becomes of connections to the socket that a service manager keeps while no daemon runs?
//
// The socket only starts the daemon, which then listens on sockets of its own. A front does not wait for that: it makes its call and
// has left. A person's HTTP request is passed on to the daemon's own socket.
import type { Socket } from 'bun';
import type { ListeningSocket } from '../sys/service-manager.ts';
import { decline } from './protocol.ts';
import { encodeAnswer, WIRE } from './wire.ts';

/** Connections arrive here only until the daemon listens; a late one waits for the next look. */
const LOOK_EVERY_MS = 1_000;
const FIRST_BYTES_S = 60;

/** What one end of a relayed connection has not taken yet. */
interface End {
  other: Socket<End> | undefined;
  unsent: Uint8Array;
  isOver: boolean;
}

/**
 * Serves what waits on these sockets, now and later.
 * @param socket the daemon's own one for HTTP
 * @returns a function that stops this; what arrives from then on starts the next daemon
 */
export function serveEarlyClients(listening: readonly ListeningSocket[], socket: string): () => void {
  const look = (): void => {
    for (const one of listening) {
      for (let fd = one.accept(); fd !== undefined; fd = one.accept()) void relay(fd, socket);
    }
  };
  look();
  const timer = setInterval(look, LOOK_EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

const HANDLERS = {
  data: (socket: Socket<End>, chunk: Uint8Array) =>
    void (socket.data.other && send(socket.data.other, chunk)),
  drain: flush,
  end: (socket: Socket<End>) => void (socket.data.other && finish(socket.data.other)),
  close: (socket: Socket<End>) => void (socket.data.other && finish(socket.data.other)),
  error: (socket: Socket<End>) => void socket.data.other?.terminate(),
};

async function relay(fd: number, path: string): Promise<void> {
  const clientEnd: End = { other: undefined, unsent: new Uint8Array(), isOver: false };
  const daemonEnd: End = { ...clientEnd };
  let asked: Uint8Array | undefined;
  const client = await Bun.connect<End>({
    fd,
    data: clientEnd,
    socket: {
      ...HANDLERS,
      async data(socket: Socket<End>, chunk: Uint8Array) {
        if (asked !== undefined) {
          if (clientEnd.other) send(clientEnd.other, chunk);
          else asked = Buffer.concat([asked, chunk]);
          return;
        }
        asked = Uint8Array.from(chunk);
        if (new DataView(asked.buffer).getUint8(0) === (WIRE.WIRE_MAGIC & 0xff)) {
          send(socket, encodeAnswer(decline('ending', 'this socket only starts the daemon')));
          finish(socket);
          return;
        }
        socket.timeout(0);
        daemonEnd.other = socket;
        const daemon = await Bun.connect<End>({ unix: path, data: daemonEnd, socket: HANDLERS }).catch(
          () => undefined,
        );
        if (daemon === undefined) return void socket.terminate();
        clientEnd.other = daemon;
        send(daemon, asked);
      },
      timeout: (socket: Socket<End>) => void socket.terminate(),
      end: (socket: Socket<End>) => (asked === undefined ? socket.terminate() : HANDLERS.end(socket)),
    },
  } as never).catch(() => undefined);
  (client as Socket<End> | undefined)?.timeout(FIRST_BYTES_S);
}

function send(socket: Socket<End>, bytes: Uint8Array): void {
  const { data } = socket;
  data.unsent = data.unsent.length ? Buffer.concat([data.unsent, bytes]) : Uint8Array.from(bytes);
  flush(socket);
}

function finish(socket: Socket<End>): void {
  socket.data.isOver = true;
  flush(socket);
}

function flush(socket: Socket<End>): void {
  const { data } = socket;
  if (data.unsent.length > 0) data.unsent = data.unsent.subarray(Math.max(socket.write(data.unsent), 0));
  if (data.isOver && data.unsent.length === 0) socket.end();
}
