// How does the runner send requests to a cluster's API server, and follow streams from it?
//
// @kubernetes/client-node finds cluster and credentials. But its own requests and its Watch do not work with Bun, whose undici
// has no dispatcher and therefore does not pass the certificate of the cluster. Requests from here use
// node:https.
import type { ClientRequest, IncomingMessage } from 'node:http';
import { type RequestOptions, request } from 'node:https';
import { KubeConfig } from '@kubernetes/client-node';
import { CniError, ErrorCode, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { objectIn } from '../cni/invocation.ts';
import { isObject, type JsonObject, LineSplitter } from '../cni/json.ts';
import { pause, startTimer } from '../wait.ts';
import type { ClusterAccess } from './cluster.ts';

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
  onOpen(): void;
  /** An exception ends the reply. */
  onLine(line: string): void;
  readonly signal: AbortSignal;
  /** Silence after which the server counts as gone. */
  readonly silenceMs: number;
}

function contentTypeOf(method: string | undefined, body: JsonObject | readonly JsonObject[]): string {
  if (method !== 'PATCH') return 'application/json';
  return Array.isArray(body) ? 'application/json-patch+json' : 'application/merge-patch+json';
}

/** Limit of a reply, and of a line of one. A page of a list may be longer: then it is asked for in parts. */
const MAX_BYTES = 16 * 1024 * 1024;

class ReplyTooLong extends Error {}

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
  const object = objectIn(answer);
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
    const lines = new LineSplitter(MAX_BYTES);
    const end = (): void => resolve(statusCode);
    extend(silenceMs, end);
    signal.addEventListener('abort', end, { once: true });
    asked.on('close', () => signal.removeEventListener('abort', end));
    if (statusCode === 200) onOpen();
    reply.on('data', (chunk: Buffer) => {
      if (statusCode !== 200) return;
      extend(silenceMs, end);
      try {
        for (const line of lines.push(chunk)) if (line !== '') onLine(line);
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

/** Sends a request. The function that takes the reply says when it is complete, and may extend its deadline. */
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

function describe({ method }: RequestOptions, { pathname, origin }: URL): string {
  return `${method} ${pathname} of "${origin}"`;
}

function unreachable({ options, url }: Prepared, cause: unknown): CniError {
  const text = `Cannot reach the Kubernetes API: ${(cause as Error).message}`;
  return tryAgainLater(text, { details: describe(options, url), cause });
}

function refused(status: number, object: JsonObject | undefined, what: string): CniError {
  const busy = status === 429 || status >= 500 || status === 409;
  const message = typeof object?.message === 'string' ? object.message : `status ${status}`;
  const code = busy ? ErrorCode.tryAgainLater : ErrorCode.internal;
  const text = `Cannot use the Kubernetes API: ${message}`;
  const details = `${what}: status ${status}`;
  return status === 401 ? new Unauthorized(code, text, { details }) : new CniError(code, text, { details });
}

/** Number of objects per reply to a list request. */
const PAGE = 500;
/** Fewer, by this factor, where that many are too long. Twice is enough: etcd takes no object of more than 1.5 MiB. */
const FEWER = 8;
/** Objects asked for. A server that says "continue" for ever would otherwise be asked for ever. */
const MOST_ASKED = 500_000;

/** The kind of the objects is not installed in the cluster. */
export class NoSuchKind extends CniError {
  constructor(path: string) {
    super(ErrorCode.internal, `Cannot list "${path}": the cluster has no such kind`);
  }
}

export interface Page {
  readonly items: readonly JsonObject[];
  /** Version of the whole list. */
  readonly version: string;
}

/**
 * The pages of a list. One that is too long for a reply is asked for again with fewer objects: a program that may write some can make each large,
 * and those of all others would be unknown.
 * @throws CniError 11 when the server cannot be reached, or the list does not end; 999 when it refuses, or has no such kind
 */
export async function* listPages(
  server: Pick<ApiServer, 'ask'>,
  path: string,
  query: Readonly<Record<string, string>> = {},
): AsyncGenerator<Page> {
  let next = '';
  let limit = PAGE;
  for (let asked = 0; asked < MOST_ASKED; asked += limit) {
    const parameters = new URLSearchParams({ ...query, limit: `${limit}`, ...(next && { continue: next }) });
    let page: JsonObject | undefined;
    try {
      page = await server.ask('GET', `${path}?${parameters}`);
    } catch (thrown) {
      if (limit === 1 || !((thrown as Error).cause instanceof ReplyTooLong)) throw thrown;
      limit = Math.ceil(limit / FEWER);
      continue;
    }
    if (page === undefined) throw new NoSuchKind(path);
    const { continue: more, resourceVersion } = isObject(page.metadata) ? page.metadata : {};
    const items = Array.isArray(page.items) ? page.items.filter(isObject) : [];
    yield { items, version: typeof resourceVersion === 'string' ? resourceVersion : '' };
    if (typeof more !== 'string' || more === '') return;
    next = more;
    limit = Math.min(2 * limit, PAGE);
  }
  throw tryAgainLater(
    `Cannot list "${path}": ${MOST_ASKED} objects were asked for, and the server says that there are more`,
  );
}

// The kubeconfig that `catena install` writes contains the path of a token that belongs to a pod of the DaemonSet. While that pod is
// replaced, as in each upgrade, the token is gone or refused for some seconds, until its successor has written the kubeconfig again.
// Pods that come and go at that moment should not fail, so requests wait for it.

/** How long a pod of the DaemonSet may take to be replaced. */
const REPLACEMENT_MS = 30_000;
const LOOK_AGAIN_MS = 250;

export class ApiAccess {
  readonly #kubeconfig: string | undefined;
  #config: KubeConfig;

  /**
   * @param kubeconfig its path; if undefined, the account of the pod that this process runs in
   * @throws CniError 7 when it cannot be used
   */
  constructor(kubeconfig: string | undefined) {
    this.#kubeconfig = kubeconfig;
    this.#config = load(kubeconfig);
    serverOf(this.#config, kubeconfig);
  }

  /**
   * Does work with credentials. If its token is gone, or the work throws {@link Unauthorized}, it is done again with those that
   * replace them.
   * @param signal ends the wait
   * @param work gets the server's address
   * @throws CniError 11 when the token does not come back in time, 7 when the kubeconfig cannot be used
   */
  async with<T>(
    options: RequestOptions,
    signal: AbortSignal | undefined,
    work: (server: string, options: RequestOptions) => Promise<T>,
  ): Promise<T> {
    const until = performance.now() + REPLACEMENT_MS;
    for (;;) {
      try {
        const own = { ...options, headers: { ...options.headers } };
        await this.#authorize(own);
        return await work(serverOf(this.#config, this.#kubeconfig), own);
      } catch (error) {
        const isLate = performance.now() > until || signal?.aborted;
        if (isLate || !this.#hasToken || !(error instanceof TokenGone || error instanceof Unauthorized))
          throw error;
      }
      await pause(LOOK_AGAIN_MS);
      this.#reload();
    }
  }

  async #authorize(options: RequestOptions): Promise<void> {
    try {
      // Applied to every request, because tokens are replaced while we run.
      await this.#config.applyToHTTPSOptions(options);
      // One for all requests with these credentials: without a connection that is kept, each request costs both sides a handshake.
      Object.assign(options.agent ?? {}, { keepAlive: true });
    } catch (cause) {
      const isGone = (cause as NodeJS.ErrnoException).code === 'ENOENT';
      const what = nameOf(this.#kubeconfig);
      const text = `Cannot use ${what}: ${(cause as Error).message}`;
      if (isGone) throw new TokenGone(ErrorCode.tryAgainLater, text, { cause });
      throw invalidConfig(text, { cause });
    }
  }

  /** Whether its credentials are a token that is renewed in a file. */
  get #hasToken(): boolean {
    const { authProvider } = this.#config.getCurrentUser() ?? {};
    return typeof authProvider?.config?.tokenFile === 'string';
  }

  #reload(): void {
    try {
      this.#config = load(this.#kubeconfig);
    } catch {
      // It is being replaced, and the former one may still do.
    }
  }
}

/** The server does not accept the credentials. */
export class Unauthorized extends CniError {}

class TokenGone extends CniError {}

/** Where the server of an access is, as a URL. @throws CniError 7 when the kubeconfig cannot be used */
export function serverAddress({ kubeconfig }: { readonly kubeconfig: string | undefined }): string {
  return serverOf(load(kubeconfig), kubeconfig);
}

/** The namespace that the current context of a kubeconfig names. @throws CniError 7 when it cannot be used */
export function namespaceIn(kubeconfig: string): string | undefined {
  const config = load(kubeconfig);
  return config.getContextObject(config.getCurrentContext())?.namespace;
}

function load(kubeconfig: string | undefined): KubeConfig {
  const config = new KubeConfig();
  try {
    if (kubeconfig === undefined) config.loadFromCluster();
    else config.loadFromFile(kubeconfig);
    return config;
  } catch (cause) {
    throw unusable(kubeconfig, (cause as Error).message, cause);
  }
}

function serverOf(config: KubeConfig, kubeconfig: string | undefined): string {
  const server = config.getCurrentCluster()?.server;
  if (server === undefined) throw unusable(kubeconfig, 'its current context has no cluster');
  if (isAddress(server)) return server;
  const found = `the server of its cluster is ${JSON.stringify(server)}`;
  throw unusable(kubeconfig, `${found}, expected an address that starts with "https://"`);
}

/** The kubeconfig may lack the scheme, or hold a YAML number. */
function isAddress(server: unknown): boolean {
  return typeof server === 'string' && URL.canParse(server) && new URL(server).protocol === 'https:';
}

function unusable(kubeconfig: string | undefined, problem: string, cause?: unknown): CniError {
  const text = `Cannot use ${nameOf(kubeconfig)}: ${problem}`;
  return invalidConfig(text, { cause });
}

function nameOf(kubeconfig: string | undefined): string {
  return kubeconfig === undefined ? 'the service account of this pod' : `kubeconfig "${kubeconfig}"`;
}
