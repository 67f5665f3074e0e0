// What do a client and the daemon send each other, byte by byte?
//
// One message in each direction on each connection, little endian; while a call takes long, the daemon shows that it is alive.
// The front (plugins/front/front.c), which alone sends requests, is compiled with this table.
import type { Socket } from 'bun';
import type { Reply } from '../cni/invocation.ts';
import { DAEMON_COMMANDS, decline, type RunAnswer, type RunRequest, SIGN_MS } from './protocol.ts';

/** Offsets, lengths and numbers, by their names in front.c. */
export const WIRE = {
  /** "CTNA". Magic, version and total are at the same offsets in every version. */
  WIRE_MAGIC: 0x414e5443,
  WIRE_VERSION: 1,
  // A request: this header, then plugin, directory, arguments, environment and standard input.
  WIRE_AT_MAGIC: 0,
  WIRE_AT_VERSION: 4,
  WIRE_AT_TOTAL: 8,
  WIRE_AT_KIND: 12,
  WIRE_AT_KEY: 16,
  WIRE_AT_PLACE: 56,
  WIRE_AT_LENGTHS: 104,
  /** Milliseconds since the epoch, modulo 2^32: when the client sent it. */
  WIRE_AT_SENT: 124,
  WIRE_REQUEST_HEADER: 128,
  WIRE_KEY_BYTES: 36,
  WIRE_KIND_COMMAND: 0,
  WIRE_KIND_CALL: 1,
  WIRE_KIND_PING: 2,
  WIRE_KIND_PROBE: 3,
  WIRE_REQUEST_LIMIT: 0x2000000,
  // A reply frame: this header, then standard output and standard error.
  WIRE_REPLY_AT_MAGIC: 0,
  WIRE_REPLY_AT_KIND: 4,
  WIRE_REPLY_AT_TOTAL: 8,
  WIRE_REPLY_AT_STATUS: 12,
  WIRE_REPLY_AT_STDOUT: 16,
  WIRE_REPLY_AT_STDERR: 20,
  WIRE_REPLY_HEADER: 24,
  WIRE_REPLY_SIGN: 1,
  WIRE_REPLY_DECLINED: 2,
  WIRE_REPLY_ANSWER: 3,
  WIRE_REPLY_LIMIT: 0x1000000,
} as const;

/** Bytes from which the length of a request is known. */
const REQUEST_START = WIRE.WIRE_AT_TOTAL + 4;

const encoder = new TextEncoder();
/** Invalid bytes become U+FFFD, and a byte order mark stays, as where a process decodes its own input. */
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** A key is a line of its own in the list of calls that clients have given up. */
const KEY = /^[\w-]+$/;

/** The request of `catena daemon --ping`: a header alone. */
export const PING = pingRequest();

/**
 * What a whole request asks the daemon about itself, of which the kind decides: {@link PING}, or the front's probe, a header with the executable
 * that it belongs to.
 */
export function asksAfter(bytes: Uint8Array): { readonly executable?: string } | undefined {
  const view = viewOf(bytes);
  const kind = view.getUint32(WIRE.WIRE_AT_KIND, true);
  if (kind === WIRE.WIRE_KIND_PING) return {};
  return kind === WIRE.WIRE_KIND_PROBE ? { executable: placeIn(view).executable } : undefined;
}

/**
 * Length of the request that begins with these bytes, of which there must be {@link REQUEST_START}.
 * @returns undefined if it is no request of this version, or longer than allowed
 */
export function requestLength(start: Uint8Array, limit: number): number | undefined {
  const view = viewOf(start);
  const total = view.getUint32(WIRE.WIRE_AT_TOTAL, true);
  const isOurs =
    view.getUint32(WIRE.WIRE_AT_MAGIC, true) === WIRE.WIRE_MAGIC &&
    view.getUint32(WIRE.WIRE_AT_VERSION, true) === WIRE.WIRE_VERSION;
  return isOurs && total >= WIRE.WIRE_REQUEST_HEADER && total <= limit ? total : undefined;
}

/**
 * Decodes a whole request; undefined if its parts do not fill it, or it is not one that a client sends: a call, or a command that the
 * daemon runs for clients (a second daemon in its own process is not).
 */
export function decodeRequest(bytes: Uint8Array): RunRequest | undefined {
  const view = viewOf(bytes);
  const lengths = [0, 1, 2, 3, 4].map(i => view.getUint32(WIRE.WIRE_AT_LENGTHS + 4 * i, true));
  if (lengths.reduce<number>((sum, length) => sum + length, WIRE.WIRE_REQUEST_HEADER) !== bytes.length)
    return undefined;
  let at: number = WIRE.WIRE_REQUEST_HEADER;
  const texts = lengths.map(length => {
    at += length;
    return decoder.decode(bytes.subarray(at - length, at));
  });
  const [plugin = '', cwd = '', line = '', env = '', stdin = ''] = texts;
  const keyBytes = bytes.subarray(WIRE.WIRE_AT_KEY, WIRE.WIRE_AT_KEY + WIRE.WIRE_KEY_BYTES);
  const key = decoder.decode(keyBytes).replace(/\0+$/, '');
  const kind = view.getUint32(WIRE.WIRE_AT_KIND, true);
  const args = split(line);
  const isKnown =
    kind === WIRE.WIRE_KIND_CALL
      ? args.length === 0
      : kind === WIRE.WIRE_KIND_COMMAND && DAEMON_COMMANDS.includes(args[0] ?? '');
  if (!isKnown || !KEY.test(key)) return undefined;
  return {
    place: placeIn(view),
    ...(plugin === '' ? {} : { plugin }),
    args,
    cwd,
    env: environmentIn(env),
    stdin,
    key,
    // Signed, for a clock that was set back in between.
    ageMs: (Date.now() - view.getUint32(WIRE.WIRE_AT_SENT, true)) | 0,
  };
}

function placeIn(view: DataView): RunRequest['place'] {
  const [executable = '', network = '', mount = ''] = [0, 1, 2].map(i => {
    const from = WIRE.WIRE_AT_PLACE + 16 * i;
    // As numbers, since that is how both sides read them from the file system.
    return `${Number(view.getBigUint64(from, true))}:${Number(view.getBigUint64(from + 8, true))}`;
  });
  return { executable, network, mount };
}

export type Frame =
  | { readonly kind: 'sign' }
  | { readonly kind: 'declined'; readonly begun: boolean }
  | { readonly kind: 'answer'; readonly reply: Reply };

/** The sign of life. */
export const SIGN = frame(WIRE.WIRE_REPLY_SIGN, 0);

/** @returns a frame that says "lost" if the outputs are longer than a client accepts */
export function encodeAnswer({ exitCode, stdout, stderr, declined, begun }: RunAnswer): Uint8Array {
  if (declined !== undefined) return frame(WIRE.WIRE_REPLY_DECLINED, begun ? 1 : 0);
  const [out, err] = [encoder.encode(stdout), encoder.encode(stderr)];
  if (WIRE.WIRE_REPLY_HEADER + out.length + err.length > WIRE.WIRE_REPLY_LIMIT)
    return frame(WIRE.WIRE_REPLY_DECLINED, 1);
  return frame(WIRE.WIRE_REPLY_ANSWER, exitCode, out, err);
}

/**
 * The frame at the beginning of the bytes, and its length.
 * @returns undefined if it has not arrived whole; `broken` if this is no frame
 */
export function decodeFrame(
  bytes: Uint8Array,
): { readonly frame: Frame; readonly length: number } | 'broken' | undefined {
  if (bytes.length < WIRE.WIRE_REPLY_HEADER) return undefined;
  const view = viewOf(bytes);
  const at = (offset: number): number => view.getUint32(offset, true);
  const [length, out, err] = [
    at(WIRE.WIRE_REPLY_AT_TOTAL),
    at(WIRE.WIRE_REPLY_AT_STDOUT),
    at(WIRE.WIRE_REPLY_AT_STDERR),
  ];
  const isFrame = at(WIRE.WIRE_REPLY_AT_MAGIC) === WIRE.WIRE_MAGIC && length <= WIRE.WIRE_REPLY_LIMIT;
  if (!isFrame || WIRE.WIRE_REPLY_HEADER + out + err !== length) return 'broken';
  if (bytes.length < length) return undefined;
  const kind = at(WIRE.WIRE_REPLY_AT_KIND);
  const exitCode = at(WIRE.WIRE_REPLY_AT_STATUS);
  if (kind === WIRE.WIRE_REPLY_SIGN) return { frame: { kind: 'sign' }, length };
  if (kind === WIRE.WIRE_REPLY_DECLINED)
    return { frame: { kind: 'declined', begun: exitCode !== 0 }, length };
  if (kind !== WIRE.WIRE_REPLY_ANSWER) return 'broken';
  const middle = WIRE.WIRE_REPLY_HEADER + out;
  const stdout = decoder.decode(bytes.subarray(WIRE.WIRE_REPLY_HEADER, middle));
  const stderr = decoder.decode(bytes.subarray(middle, length));
  return { frame: { kind: 'answer', reply: { exitCode: exitCode & 0xff, stdout, stderr } }, length };
}

export interface AnsweredCall {
  readonly reply: RunAnswer;
  /**
   * Called when the client can read the whole reply, or has gone. Until then its call must count as begun: a client that finds it
   * neither begun nor answered makes it itself.
   */
  readonly told?: () => void;
}

/** Answers a request; a rejection ends the connection. The signal is aborted when the client has gone. */
export type AnswerCall = (request: RunRequest, signal: AbortSignal) => Promise<AnsweredCall>;

/** A client connects before it reads its standard input, which its caller may write slowly. */
const REQUEST_DEADLINE_S = 60;

/** Longer than one turn of the event loop. */
const ACCEPT_MS = 10;

export interface Answering {
  readonly maxBytes: number;
  readonly answer: AnswerCall;
  /** What a ping is answered, or a probe of the front of this executable. */
  ping(executable: string | undefined): RunAnswer;
  /** Told about bytes that are no request of this version. */
  refuse(reason: 'request'): void;
}

/** A client: one request, then one answer. */
class Connection {
  readonly #socket: Socket<Connection>;
  readonly #how: Answering;
  readonly #gone = new AbortController();
  /** What has arrived of the request. */
  #pieces: Uint8Array[] = [];
  #length = 0;
  /** Length of the whole request, once known. */
  #total: number | undefined;
  #isAsked = false;
  #isClosed = false;
  /** The answer was given, or nothing is to be answered. */
  isOver = false;
  /**
   * What arrived is no request. The rest of it is read and dropped, up to the longest request: the client of a socket that is closed
   * while it writes is told EPIPE, and may never read why (net/unix/af_unix.c, unix_stream_sendmsg).
   */
  isTurnedAway = false;
  #signs: ReturnType<typeof setInterval> | undefined;
  /** What the client has not taken yet; the connection ends with the answer. */
  #unsent: Uint8Array = new Uint8Array();
  #told: (() => void) | undefined;

  constructor(socket: Socket<Connection>, how: Answering) {
    [this.#socket, this.#how] = [socket, how];
    socket.timeout(REQUEST_DEADLINE_S);
  }

  receive(chunk: Uint8Array): void {
    this.#length += chunk.length;
    if (this.isTurnedAway && this.#length > this.#how.maxBytes) this.#socket.terminate();
    if (this.#isAsked) return;
    this.#pieces.push(Uint8Array.from(chunk));
    if (this.#total === undefined && this.#length >= REQUEST_START) {
      this.#pieces = [Buffer.concat(this.#pieces)];
      this.#total = requestLength(this.#pieces[0] as Uint8Array, this.#how.maxBytes);
      if (this.#total === undefined) this.#turnAway();
    }
    if (this.#total === undefined || this.#length < this.#total) return;
    const bytes = Buffer.concat(this.#pieces).subarray(0, this.#total);
    this.#pieces = [];
    this.#serve(bytes);
  }

  #serve(bytes: Uint8Array): void {
    const asked = asksAfter(bytes);
    if (asked) {
      this.#isAsked = true;
      this.#finish(this.#how.ping(asked.executable));
      return;
    }
    const request = decodeRequest(bytes);
    if (request === undefined) {
      this.#turnAway();
      return;
    }
    this.#isAsked = true;
    this.#socket.timeout(0);
    this.#signs = setInterval(() => this.#send(SIGN), SIGN_MS);
    const answered = this.#how.answer(request, this.#gone.signal);
    void answered.then(
      ({ reply, told }) => this.#finish(reply, told),
      // Signs without an answer would keep the client for ever: it learns from the calls file whether the call had begun.
      () => this.#socket.terminate(),
    );
  }

  #turnAway(): void {
    this.#how.refuse('request');
    this.#isAsked = true;
    this.isTurnedAway = true;
    this.#pieces = [];
    this.#finish(decline('request', 'these bytes are no request of this version'));
  }

  #finish(reply: RunAnswer, told?: () => void): void {
    clearInterval(this.#signs);
    this.isOver = true;
    this.#told = told;
    if (this.#isClosed) told?.();
    else this.#send(encodeAnswer(reply));
  }

  #send(bytes: Uint8Array): void {
    // A client that does not read needs no further signs.
    if (this.#isClosed || (this.#unsent.length > 0 && !this.isOver)) return;
    this.#unsent = this.#unsent.length ? Buffer.concat([this.#unsent, bytes]) : bytes;
    this.flush();
  }

  flush(): void {
    if (this.#unsent.length > 0) {
      const sent = this.#socket.write(this.#unsent);
      this.#unsent = this.#unsent.subarray(Math.max(sent, 0));
    }
    if (!this.isOver || this.#unsent.length > 0) return;
    this.#told?.();
    if (this.isTurnedAway) this.#socket.shutdown();
    else this.#socket.end();
  }

  expire(): void {
    if (!this.#isAsked || this.isTurnedAway) this.#socket.terminate();
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#signs);
    this.#gone.abort();
    this.#told?.();
  }
}

export function listenForCalls(path: string, how: Answering) {
  const open = new Set<Socket<Connection>>();
  const answering = new Set<Promise<unknown>>();
  const answer: AnswerCall = (request, signal) => {
    const answered = how.answer(request, signal);
    answering.add(answered);
    const forgetAnswer = () => answering.delete(answered);
    void answered.then(forgetAnswer, forgetAnswer);
    return answered;
  };
  const forget = (socket: Socket<Connection>): void => {
    open.delete(socket);
    socket.data.close();
  };
  const listener = Bun.listen<Connection>({
    unix: path,
    socket: {
      open(socket) {
        socket.data = new Connection(socket, { ...how, answer });
        open.add(socket);
      },
      data: (socket, chunk) => socket.data.receive(chunk),
      drain: socket => socket.data.flush(),
      timeout: socket => socket.data.expire(),
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
    /** Accepts no more connections, answers the requests that have arrived, and closes. */
    async stop() {
      // The socket no longer has a name. Clients that connected before are accepted: the kernel would break their connections.
      await Bun.sleep(ACCEPT_MS);
      listener.stop();
      // What has arrived is read first.
      await Bun.sleep(0);
      await Promise.allSettled(answering);
      for (const socket of open) if (!socket.data.isOver || socket.data.isTurnedAway) socket.terminate();
    },
  };
}

function frame(
  kind: number,
  status: number,
  out: Uint8Array = new Uint8Array(),
  err: Uint8Array = new Uint8Array(),
): Uint8Array {
  const bytes = new Uint8Array(WIRE.WIRE_REPLY_HEADER + out.length + err.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(WIRE.WIRE_REPLY_AT_MAGIC, WIRE.WIRE_MAGIC, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_KIND, kind, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_TOTAL, bytes.length, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_STATUS, status, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_STDOUT, out.length, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_STDERR, err.length, true);
  bytes.set(out, WIRE.WIRE_REPLY_HEADER);
  bytes.set(err, WIRE.WIRE_REPLY_HEADER + out.length);
  return bytes;
}

function pingRequest(): Uint8Array {
  const bytes = new Uint8Array(WIRE.WIRE_REQUEST_HEADER);
  const view = viewOf(bytes);
  view.setUint32(WIRE.WIRE_AT_MAGIC, WIRE.WIRE_MAGIC, true);
  view.setUint32(WIRE.WIRE_AT_VERSION, WIRE.WIRE_VERSION, true);
  view.setUint32(WIRE.WIRE_AT_TOTAL, WIRE.WIRE_REQUEST_HEADER, true);
  view.setUint32(WIRE.WIRE_AT_KIND, WIRE.WIRE_KIND_PING, true);
  return bytes;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function split(text: string): string[] {
  return text === '' ? [] : text.replace(/\0$/, '').split('\0');
}

/** As Bun reads it: the last of two variables of the same name counts, and one without "=" is empty. */
function environmentIn(text: string): RunRequest['env'] {
  const pairs = split(text).flatMap((one): [string, string][] => {
    const at = one.indexOf('=');
    if (at < 0) return [[one, '']];
    return at === 0 ? [] : [[one.slice(0, at), one.slice(at + 1)]];
  });
  return Object.fromEntries(pairs);
}
