// How are the daemon's two sockets and its calls file made, checked and removed together?
import { renameSync, rmSync, statSync, symlinkSync, utimesSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { CURRENT_VERSION } from '../cni/version.ts';
import { namesIn } from '../files/names-in.ts';
import { BegunCalls } from './calls.ts';
import { type DeclineReason, startSocketOf, wireOf } from './protocol.ts';
import { type AnswerCall, listenForCalls } from './wire-server.ts';

/** The listening sockets, and the calls that arrive there. */
export interface OpenDoor {
  /** Whether the socket still has its name. */
  isThere(): boolean;
  /** Whether the socket for calls and the calls file exist as well. */
  isWhole(): boolean;
  /** Clients that are connected to the socket for calls. */
  readonly connections: number;
  /** Removes the names, as far as they are those of this door. A socket that starts daemons gets them back. */
  remove(): void;
  /** Answers the pending requests and closes. */
  close(): Promise<void>;
}

/** What happens to HTTP requests, to calls, and to bytes that are no call. */
export interface Handlers {
  serve(request: Request): Promise<Response>;
  answer(calls: BegunCalls): AnswerCall;
  ping(): object;
  refuse(reason: DeclineReason): void;
}

/**
 * Opens both sockets. Each gets its name once it listens, so a client never finds a name without a daemon behind it.
 */
export function listen(
  socketPath: string,
  maxBytes: number,
  { serve, answer, ping, refuse }: Handlers,
): OpenDoor {
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
        return serve(request);
      },
      error: error => problem(500, error.message),
    });
    try {
      const answerCall: AnswerCall = (request, signal) => answer(calls as BegunCalls)(request, signal);
      return { server, wire: listenForCalls(freshWire, maxBytes, answerCall, ping, refuse) };
    } catch (error) {
      void server.stop(true);
      throw error;
    }
  });
  // Clients find the calls file by this time in milliseconds. In the middle of one, rounding makes no difference.
  const time = (Date.now() + 0.5) / 1000;
  utimesSync(freshWire, time, time);
  const [made, madeWire] = [statSync(fresh), statSync(freshWire)];
  let begun: BegunCalls;
  try {
    begun = new BegunCalls(socketPath, madeWire);
  } catch (error) {
    void server.stop(true);
    void wire.stop();
    throw error;
  }
  calls = begun;
  const has = (path: string, { ino, mtimeMs }: typeof made): boolean => {
    const found = statSync(path, { throwIfNoEntry: false });
    return found?.ino === ino && found.mtimeMs === mtimeMs;
  };
  let closed: Promise<unknown> | undefined;
  const door: OpenDoor = {
    get connections() {
      return wire.connections;
    },
    isThere: () => has(socketPath, made),
    isWhole: () => has(socketPath, made) && has(wirePath, madeWire) && begun.isThere(),
    remove() {
      if (has(wirePath, madeWire)) giveUpName(wirePath, socketPath);
      if (has(socketPath, made)) giveUpName(socketPath, socketPath);
    },
    async close() {
      closed ??= Promise.all([server.stop(), wire.stop()]).then(() => begun.close());
      await closed;
    },
  };
  renameSync(freshWire, wirePath);
  renameSync(fresh, socketPath);
  return door;
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
