// How does the daemon receive calls and answer them?
//
// One request and one answer per connection, as described in wire.ts; while a call takes long, the daemon shows that it is alive.
import type { Socket } from 'bun';
import {
  DAEMON_COMMANDS,
  type Declined,
  type DeclineReason,
  type RunAnswer,
  type RunRequest,
  SIGN_MS,
} from './protocol.ts';
import { decodeRequest, encodeAnswer, isPing, REQUEST_START, requestLength, SIGN } from './wire.ts';

/** An answered request. */
export interface AnsweredCall {
  readonly reply: RunAnswer | Declined;
  /**
   * Called when the client can read the whole reply, or has gone. Until then its call must count as begun: a client that finds it
   * neither begun nor answered makes it itself.
   */
  readonly told?: () => void;
}

/** Answers a request; never rejects. The signal is aborted when the client has gone. */
export type AnswerCall = (request: RunRequest, signal: AbortSignal) => Promise<AnsweredCall>;

/** A listening socket for calls. */
export interface WireListener {
  /** Clients that are connected. */
  readonly connections: number;
  /** Accepts no more connections, answers the requests that have arrived, and closes. */
  stop(): Promise<void>;
}

/** A client connects before it reads its standard input, which its caller may write slowly. */
const REQUEST_DEADLINE_S = 60;

/** Longer than one turn of the event loop. */
const ACCEPT_MS = 10;

interface Connection {
  /** What has arrived of the request. */
  pieces: Uint8Array[];
  length: number;
  /** When its first bytes arrived, in milliseconds since the epoch. */
  arrivedAt: number;
  /** When the last ones arrived, on the monotonic clock. */
  heardAt: number;
  /** The longest pause between bytes. */
  pauseMs: number;
  /** Length of the whole request, once known. */
  total: number | undefined;
  isAsked: boolean;
  isOver: boolean;
  readonly gone: AbortController;
  signs: ReturnType<typeof setInterval> | undefined;
  /** What the client has not taken yet; the connection ends with the answer. */
  unsent: Uint8Array;
  told: (() => void) | undefined;
}

/**
 * Listens at a path.
 * @param maxBytes longest request
 * @param ping what `catena daemon --ping` is answered
 * @param refuse told about bytes that are no request of this version
 */
export function listenForCalls(
  path: string,
  maxBytes: number,
  answer: AnswerCall,
  ping: () => object,
  refuse: (reason: DeclineReason) => void,
): WireListener {
  const open = new Set<Socket<Connection>>();
  const answering = new Set<Promise<void>>();

  function receive(socket: Socket<Connection>, chunk: Uint8Array): void {
    const { data } = socket;
    if (data.isAsked) return;
    note(data);
    data.pieces.push(Uint8Array.from(chunk));
    data.length += chunk.length;
    if (data.total === undefined && data.length >= REQUEST_START) {
      data.pieces = [Buffer.concat(data.pieces)];
      data.total = requestLength(data.pieces[0] as Uint8Array, maxBytes);
      if (data.total === undefined) {
        decline(socket);
        return;
      }
    }
    if (data.total === undefined || data.length < data.total) return;
    const bytes = Buffer.concat(data.pieces).subarray(0, data.total);
    data.pieces = [];
    if (isPing(bytes)) {
      data.isAsked = true;
      finish(socket, encodeAnswer({ exitCode: 0, stdout: JSON.stringify(ping()), stderr: '' }));
      return;
    }
    const request = decodeRequest(bytes);
    if (request === undefined || !isOfClient(request)) {
      decline(socket);
      return;
    }
    data.isAsked = true;
    socket.timeout(0);
    data.signs = setInterval(() => send(socket, SIGN), SIGN_MS);
    const answered = answer({ ...request, silentMs: silenceOf(data, request) }, data.gone.signal).then(
      ({ reply, told }) => finish(socket, encodeAnswer(reply), told),
    );
    answering.add(answered);
    void answered.finally(() => answering.delete(answered));
  }

  function decline(socket: Socket<Connection>): void {
    refuse('request');
    socket.data.isAsked = true;
    finish(
      socket,
      encodeAnswer({ declined: 'request', error: 'these bytes are no request of this version' }),
    );
  }

  function finish(socket: Socket<Connection>, bytes: Uint8Array, told?: () => void): void {
    clearInterval(socket.data.signs);
    socket.data.isOver = true;
    socket.data.told = told;
    if (open.has(socket)) send(socket, bytes);
    else told?.();
  }

  function send(socket: Socket<Connection>, bytes: Uint8Array): void {
    const { data } = socket;
    if (!open.has(socket)) return;
    // A client that does not read needs no further signs.
    if (data.unsent.length > 0 && !data.isOver) return;
    data.unsent = data.unsent.length ? Buffer.concat([data.unsent, bytes]) : bytes;
    flush(socket);
  }

  function flush(socket: Socket<Connection>): void {
    const { data } = socket;
    if (data.unsent.length > 0) {
      const sent = socket.write(data.unsent);
      data.unsent = data.unsent.subarray(Math.max(sent, 0));
    }
    if (!data.isOver || data.unsent.length > 0) return;
    data.told?.();
    socket.end();
  }

  function forget(socket: Socket<Connection>): void {
    open.delete(socket);
    clearInterval(socket.data.signs);
    socket.data.gone.abort();
    socket.data.told?.();
  }

  const listener = Bun.listen<Connection>({
    unix: path,
    socket: {
      open(socket) {
        socket.data = {
          ...{ pieces: [], length: 0, arrivedAt: 0, heardAt: 0, pauseMs: 0 },
          ...{ total: undefined, isAsked: false, isOver: false, signs: undefined },
          ...{ gone: new AbortController(), unsent: new Uint8Array(), told: undefined },
        };
        open.add(socket);
        socket.timeout(REQUEST_DEADLINE_S);
      },
      data: receive,
      drain: flush,
      timeout(socket) {
        if (!socket.data.isAsked) socket.terminate();
      },
      // Also when the client closes only its side: it has gone.
      end: socket => socket.terminate(),
      close: forget,
      error: forget,
    },
  });
  return {
    get connections() {
      return open.size;
    },
    async stop() {
      // The socket no longer has a name. Clients that connected before are accepted: the kernel would break their connections.
      await Bun.sleep(ACCEPT_MS);
      listener.stop();
      // What has arrived is read first.
      await Bun.sleep(0);
      await Promise.all(answering);
      for (const socket of open) if (!socket.data.isOver) socket.terminate();
    },
  };
}

/** A client that is still sending has not given up, however long the whole request takes: only a pause counts. */
function note(data: Connection): void {
  const now = performance.now();
  if (data.length === 0) data.arrivedAt = Date.now();
  else data.pauseMs = Math.max(data.pauseMs, Math.ceil(now - data.heardAt));
  data.heardAt = now;
}

/** @returns negative if the clock was set back */
function silenceOf({ arrivedAt, pauseMs }: Connection, { ageMs = 0 }: RunRequest): number {
  const beforeMs = ageMs - (Date.now() - arrivedAt);
  return Math.abs(beforeMs) > pauseMs ? beforeMs : pauseMs;
}

/** Whether it is a command or a call that the daemon runs for clients (a second daemon in its own process is not). */
function isOfClient({ args, stdin }: RunRequest): boolean {
  return stdin === undefined ? DAEMON_COMMANDS.includes(args[0] ?? '') : args.length === 0;
}
