// How does the runner send requests to a cluster's API server, and follow streams from it?
//
// @kubernetes/client-node finds cluster and credentials. But its own requests and its Watch do not work with Bun, whose undici
// has no dispatcher and therefore does not pass the certificate of the cluster. Requests from here use
// node:https.
import type { ClientRequest, IncomingMessage } from 'node:http';
import { type RequestOptions, request } from 'node:https';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { startTimer } from '../wait.ts';
import { ApiAccess, Unauthorized } from './api-access.ts';
import type { ClusterAccess } from './cluster.ts';

export { namespaceIn, serverAddress } from './api-access.ts';

/** An API server. Every call throws CniError 11 if it cannot be reached or is busy, 999 if it refuses. */
export interface ApiServer {
  /**
   * The object in the reply; undefined if there is none of that name.
   * @param body a list is a patch of operations (RFC 6902), an object with PATCH one that is merged (RFC 7396)
   * @param expected statuses for which the result is undefined; 404 unless given
   */
  ask(
    method: 'GET' | 'PATCH' | 'POST' | 'PUT' | 'DELETE',
    path: string,
    body?: JsonObject | readonly JsonObject[],
    expected?: readonly number[],
  ): Promise<JsonObject | undefined>;
  /**
   * Reads the lines of an endless reply, until the server ends it, the signal fires, or nothing has arrived for a while.
   * @returns the status: 200, or 410 if the requested version is too old
   */
  listen(path: string, listener: Listener): Promise<200 | 410>;
}

/** Callbacks and limits for an endless reply. */
export interface Listener {
  /** The reply has begun. */
  onOpen(): void;
  /** An exception ends the reply. */
  onLine(line: string): void;
  readonly signal: AbortSignal;
  /** Silence after which the server counts as gone. */
  readonly silenceMs: number;
}

/** Of the body. */
function contentTypeOf(method: string | undefined, body: JsonObject | readonly JsonObject[]): string {
  if (method !== 'PATCH') return 'application/json';
  return Array.isArray(body) ? 'application/json-patch+json' : 'application/merge-patch+json';
}

/** Limit of a reply, and of a line of one. A page of a list may be longer: then it is asked for in parts. */
const MAX_BYTES = 16 * 1024 * 1024;

/** The cause of the error for a longer one. */
export class ReplyTooLong extends Error {}

/**
 * The configured server; sends nothing yet.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export function openApiServer({ kubeconfig, timeoutMs }: ClusterAccess): ApiServer {
  const access = new ApiAccess(kubeconfig);
  const prepared = <T>(
    method: string,
    path: string,
    signal: AbortSignal | undefined,
    send: (prepared: Prepared) => Promise<T>,
  ): Promise<T> =>
    access.with({ method, timeout: timeoutMs, headers: {} }, signal, (server, options) => {
      const url = new URL(path, `${server.replace(/\/+$/, '')}/`);
      const headers = { ...options.headers, accept: 'application/json' };
      return send({ url, options: { ...options, headers }, timeoutMs });
    });
  return {
    ask: (method, path, body, expected) =>
      prepared(method, path, undefined, one => converse(one, body, expected)),
    listen: (path, listener) => prepared('GET', path, listener.signal, one => overhear(one, listener)),
  };
}

interface Prepared {
  readonly url: URL;
  readonly options: RequestOptions;
  readonly timeoutMs: number;
}

async function converse(
  prepared: Prepared,
  body: JsonObject | readonly JsonObject[] | undefined,
  expected: readonly number[] = [404],
): Promise<JsonObject | undefined> {
  const { url, options } = prepared;
  const text = body && JSON.stringify(body);
  const headers = {
    ...options.headers,
    ...(text === undefined || body === undefined
      ? {}
      : { 'content-type': contentTypeOf(options.method, body), 'content-length': Buffer.byteLength(text) }),
  };
  const send = () => exchange({ ...prepared, options: { ...options, headers } }, text);
  // The server may close a connection in the moment in which the next request is sent on it. Whether it did what a POST asks is not known.
  const reached = send().catch(cause => {
    if (cause instanceof KeptConnectionBroke && options.method !== 'POST') return send();
    throw cause;
  });
  const { status, answer } = await reached.catch(cause => {
    throw unreachable(prepared, cause);
  });
  if (expected.includes(status)) return undefined;
  const object = parse(answer);
  if (status >= 200 && status < 300 && object) return object;
  throw refused(status, object, describe(options, url));
}

function exchange(prepared: Prepared, text: string | undefined): Promise<{ status: number; answer: string }> {
  return begin(prepared, text, (reply, asked, resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    reply.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_BYTES) asked.destroy(new ReplyTooLong('its reply is too long'));
      else chunks.push(chunk);
    });
    reply.on('end', () =>
      resolve({ status: reply.statusCode ?? 0, answer: Buffer.concat(chunks).toString() }),
    );
  });
}

async function overhear(prepared: Prepared, listener: Listener): Promise<200 | 410> {
  const { onOpen, onLine, signal, silenceMs } = listener;
  const status = await begin<number>(prepared, undefined, (reply, asked, resolve, extend) => {
    const { statusCode = 0 } = reply;
    const lines = new Lines(onLine);
    const end = (): void => resolve(statusCode);
    extend(silenceMs, end);
    signal.addEventListener('abort', end, { once: true });
    asked.on('close', () => signal.removeEventListener('abort', end));
    if (statusCode === 200) onOpen();
    reply.on('data', (chunk: Buffer) => {
      if (statusCode !== 200) return;
      extend(silenceMs, end);
      try {
        lines.push(chunk);
      } catch (error) {
        asked.destroy(error as Error);
      }
    });
    reply.on('end', end);
    if (signal.aborted) end();
  }).catch(cause => {
    throw cause instanceof CniError ? cause : unreachable(prepared, cause);
  });
  if (status === 200 || status === 410) return status;
  throw refused(status, undefined, describe(prepared.options, prepared.url));
}

/**
 * Sends a request. The function that takes the reply says when it is complete, and may extend its deadline.
 */
function begin<T>(
  { url, options, timeoutMs }: Prepared,
  text: string | undefined,
  take: (
    reply: IncomingMessage,
    asked: ClientRequest,
    resolve: (value: T) => void,
    extend: (ms: number, then: () => void) => void,
  ) => void,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = (value: T): void => {
      clearTimeout(timer);
      resolve(value);
      asked.destroy();
    };
    const extend = (ms: number, then: () => void): void => {
      clearTimeout(timer);
      timer = startTimer(then, ms);
    };
    // request() throws for unusable credentials: no timer may remain of that.
    const asked = request(url, options, reply => {
      reply.on('error', fail);
      reply.on('aborted', () => fail(new Error('its reply was cut off')));
      take(reply, asked, end, extend);
    });
    const late = () => fail(new Error(`it did not reply within ${timeoutMs / 1000} s`));
    let timer = startTimer(late, timeoutMs);
    asked.on('error', fail);
    asked.end(text);

    function fail(error: Error): void {
      clearTimeout(timer);
      asked.destroy();
      const isKept = asked.reusedSocket && BROKEN.includes(String((error as NodeJS.ErrnoException).code));
      reject(isKept ? new KeptConnectionBroke(error.message, { cause: error }) : error);
    }
  });
}

/** How a connection ends that the server closes. */
const BROKEN = ['ECONNRESET', 'EPIPE'];

/** A connection from an earlier request ended before this one had a reply. */
class KeptConnectionBroke extends Error {}

/** Splits text that arrives in pieces into lines. */
class Lines {
  readonly #onLine: (line: string) => void;
  readonly #decoder = new TextDecoder();
  #pieces: string[] = [];
  #size = 0;

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(chunk: Uint8Array): void {
    const [first = '', ...others] = this.#decoder.decode(chunk, { stream: true }).split('\n');
    this.#pieces.push(first);
    this.#size += first.length;
    if (this.#size > MAX_BYTES) throw new Error('a line of its reply is too long');
    for (const next of others) {
      const line = this.#pieces.join('');
      [this.#pieces, this.#size] = [[next], next.length];
      if (line !== '') this.#onLine(line);
    }
  }
}

function describe({ method }: RequestOptions, { pathname, origin }: URL): string {
  return `${method} ${pathname} of "${origin}"`;
}

function unreachable({ options, url }: Prepared, cause: unknown): CniError {
  const text = `Cannot reach the Kubernetes API: ${(cause as Error).message}`;
  return new CniError(ErrorCode.tryAgainLater, text, { details: describe(options, url), cause });
}

function refused(status: number, object: JsonObject | undefined, what: string): CniError {
  const busy = status === 429 || status >= 500 || status === 409;
  const message = typeof object?.message === 'string' ? object.message : `status ${status}`;
  const code = busy ? ErrorCode.tryAgainLater : ErrorCode.internal;
  const text = `Cannot use the Kubernetes API: ${message}`;
  const details = `${what}: status ${status}`;
  return status === 401 ? new Unauthorized(code, text, { details }) : new CniError(code, text, { details });
}

function parse(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
