// How are the daemon's two sockets and its calls file made, checked, kept and removed together, and what becomes of clients before that?
import { mkdirSync, renameSync, rmSync, type Stats, statSync, symlinkSync, utimesSync } from 'node:fs';
import { connect } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { CURRENT_VERSION } from '../cni/result.ts';
import { namesIn } from '../files/read-file.ts';
import type { ListeningSocket } from '../sys/service-manager.ts';
import { BegunCalls } from './calls.ts';
import { decline, type RunRequest, startSocketOf, wireOf } from './protocol.ts';
import { type Seat, takeSeat, trySeat, whoListens } from './who-listens.ts';
import {
  type AnswerCall,
  type AnsweredCall,
  type Answering,
  encodeAnswer,
  listenForCalls,
  WIRE,
} from './wire.ts';

/** What happens with HTTP requests, with calls, and with bytes that are no call. */
export interface Handlers extends Pick<Answering, 'ping' | 'refuse'> {
  serve(request: Request, calls: BegunCalls): Promise<Response>;
  answer(request: RunRequest, calls: BegunCalls, signal: AbortSignal): Promise<AnsweredCall>;
  /** The socket was missing and has been created again. */
  restored(why: string): void;
  /** Another daemon has the socket, because it asked for it or because ours was removed: time to end. */
  replaced(why: string): void;
}

/** The sockets of a daemon, the calls that arrive there, and its right to them. */
export interface Door {
  /** Clients that are connected to the socket for calls. */
  readonly connections: number;
  /** Gives the names up for another daemon. A socket that starts daemons gets them back. */
  leave(): void;
  /** Leaves, answers the pending requests and closes. */
  close(): Promise<void>;
}

/** How often the daemon checks that its socket still exists, and looks for late connections to the one that started it. */
const LOOK_EVERY_MS = 1_000;

/** The front connects by unix(7), which leaves no room for more; Bun listens at longer paths, too. */
const LONGEST_PATH_BYTES = 107;

/** @returns the path @throws CniError 5 if no client could connect */
function reachable(socketPath: string): string {
  if (Buffer.byteLength(wireOf(socketPath)) <= LONGEST_PATH_BYTES) return socketPath;
  throw new CniError(
    ErrorCode.ioFailure,
    `Cannot listen on "${socketPath}": the path is too long for calls to reach it; use a shorter run directory`,
  );
}

/**
 * Listens, and creates the sockets again whenever they have been removed, alone or with their directory.
 * @param replace asks a daemon that already listens to hand over
 * @throws SeatTaken if another daemon listens, CniError 5 as {@link reachable}
 */
export async function openDoor(
  socketPath: string,
  maxBytes: number,
  handlers: Handlers,
  replace: boolean,
): Promise<Door> {
  let seat: Seat | undefined = await takeSeat(reachable(socketPath), replace);
  let current = listen(socketPath, maxBytes, handlers);
  const all = [current];
  let hasLeft = false;
  let looking: Promise<void> | undefined;
  const look = setInterval(() => {
    // If the socket cannot be created now, the next check tries again.
    looking ??= restore()
      .catch(() => {})
      .finally(() => (looking = undefined));
  }, LOOK_EVERY_MS).unref();

  function leave(): void {
    hasLeft = true;
    clearInterval(look);
    current.remove();
    seat?.release();
    seat = undefined;
  }

  async function restore(): Promise<void> {
    if (hasLeft || (current.isWhole() && seat?.holds())) return;
    mkdirSync(dirname(socketPath), { recursive: true, mode: 0o700 });
    const listener = current.isThere() ? undefined : await whoListens(socketPath);
    // One that is ending leaves the name free in a moment.
    if (hasLeft || listener === 'ending') return;
    if (listener !== undefined) {
      leave();
      return handlers.replaced(`another daemon listens on "${socketPath}"`);
    }
    const fresh = seat?.holds() ? seat : trySeat(socketPath);
    // Another daemon is starting: either it finds that this one listens, or it will listen itself.
    if (fresh === undefined) return;
    if (fresh !== seat) seat?.release();
    seat = fresh;
    if (current.isWhole()) return;
    const former = current;
    current = listen(socketPath, maxBytes, handlers);
    all.push(current);
    void former.close();
    handlers.restored(`the socket "${socketPath}" no longer existed: listening again`);
  }

  return {
    get connections() {
      return all.reduce((sum, { connections }) => sum + connections, 0);
    },
    leave,
    async close() {
      leave();
      await Promise.all(all.map(one => one.close()));
    },
  };
}

/**
 * Opens both sockets, which only their owner may open. Each gets its name once it listens, so a client never finds a name without a daemon
 * behind it.
 */
export function listen(socketPath: string, maxBytes: number, handlers: Handlers) {
  const wirePath = wireOf(socketPath);
  removeUnnamed(socketPath);
  const [fresh, freshWire] = [`${socketPath}.${process.pid}`, `${wirePath}.${process.pid}`];
  let calls: BegunCalls | undefined;
  const { server, wire } = ownerOnly(() => {
    const server = Bun.serve({
      unix: fresh,
      maxRequestBodySize: maxBytes,
      fetch(request, self) {
        // A chain takes as long as its plugins do.
        self.timeout(request, 0);
        return handlers.serve(request, calls as BegunCalls);
      },
      error: error => problem(500, error.message),
    });
    try {
      const answer: AnswerCall = (request, signal) => handlers.answer(request, calls as BegunCalls, signal);
      return { server, wire: listenForCalls(freshWire, { ...handlers, maxBytes, answer }) };
    } catch (error) {
      void server.stop(true);
      throw error;
    }
  });
  // Clients find the calls file by this time in milliseconds. In the middle of one, rounding makes no difference.
  const time = (Date.now() + 0.5) / 1000;
  utimesSync(freshWire, time, time);
  const [made, madeWire] = [statSync(fresh), statSync(freshWire)];
  let closed: Promise<unknown> | undefined;
  const close = () => (closed ??= Promise.all([server.stop(), wire.stop()]).then(() => calls?.close()));
  try {
    calls = new BegunCalls(socketPath, madeWire);
    renameSync(freshWire, wirePath);
    renameSync(fresh, socketPath);
  } catch (error) {
    void close();
    throw error;
  }
  const begun = calls;
  return {
    get connections() {
      return wire.connections;
    },
    /** Whether the socket still has its name. */
    isThere: () => has(socketPath, made),
    /** Whether the socket for calls and the calls file exist as well. */
    isWhole: () => has(socketPath, made) && has(wirePath, madeWire) && begun.isThere(),
    /** Removes the names, as far as they are those of these sockets. */
    remove() {
      if (has(wirePath, madeWire)) giveUpName(wirePath, socketPath);
      if (has(socketPath, made)) giveUpName(socketPath, socketPath);
    },
    close,
  };
}

function has(path: string, { ino, mtimeMs }: Stats): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found?.ino === ino && found.mtimeMs === mtimeMs;
}

/** Makes sockets for their owner alone. The umask is the whole process's, so it must not outlast a failure, as without free inodes. */
function ownerOnly<T>(make: () => T): T {
  const before = process.umask(0o177);
  try {
    return make();
  } finally {
    process.umask(before);
  }
}

function giveUpName(path: string, socketPath: string): void {
  const start = startSocketOf(socketPath);
  if (!statSync(start, { throwIfNoEntry: false })?.isSocket()) {
    rmSync(path, { force: true });
    return;
  }
  const link = `${path}.${process.pid}`;
  rmSync(link, { force: true });
  symlinkSync(start, link);
  // Without a moment in which the name means nothing.
  renameSync(link, path);
}

/** Removes the sockets of daemons that were killed before the rename: only the daemon that has the seat creates them. */
function removeUnnamed(socketPath: string): void {
  const [dir, beside] = [dirname(socketPath), `${basename(socketPath)}.`];
  const isUnnamed = (name: string) =>
    name.startsWith(beside) && /^(wire\.)?\d+$/.test(name.slice(beside.length));
  for (const name of namesIn(dir).filter(isUnnamed)) rmSync(join(dir, name), { force: true });
}

/** An answer over HTTP to a request that cannot be served. */
export function problem(status: number, reason: string): Response {
  const code = status === 400 ? ErrorCode.decodingFailure : ErrorCode.unknown;
  return Response.json(new CniError(code, reason).toReply(CURRENT_VERSION), { status });
}

const FIRST_BYTES_MS = 60_000;

/**
 * Serves what waits on the sockets that a service manager keeps while no daemon runs, now and later. They only start the daemon, which
 * then listens on its own. A front does not wait for that: it makes its call and has left. A person's HTTP request is passed on.
 * @param socket the daemon's own one for HTTP
 * @returns a function that stops this; what arrives from then on starts the next daemon
 */
export function serveEarlyClients(listening: readonly ListeningSocket[], socket: string): () => void {
  const look = (): void => {
    for (const one of listening) {
      for (let fd = one.accept(); fd !== undefined; fd = one.accept()) relay(fd, socket);
    }
  };
  look();
  const timer = setInterval(look, LOOK_EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

function relay(fd: number, path: string): void {
  // Of the descriptor, which Bun takes here, Node's types know nothing.
  const client = connect({ fd, allowHalfOpen: true } as never);
  const leave = (): void => void client.destroy();
  client.on('error', leave);
  client.once('end', leave);
  client.setTimeout(FIRST_BYTES_MS).once('timeout', leave);
  client.once('data', (asked: Buffer) => {
    if (asked[0] === (WIRE.WIRE_MAGIC & 0xff)) {
      client.end(encodeAnswer(decline('ending', 'this socket only starts the daemon')));
      return;
    }
    client.off('end', leave);
    client.setTimeout(0);
    const daemon = connect({ path, allowHalfOpen: true });
    daemon.on('error', leave);
    client.on('close', () => daemon.destroy());
    daemon.write(asked);
    client.pipe(daemon).pipe(client);
  });
}
