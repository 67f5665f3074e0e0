// How is the page served, to one browser and for one session?

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { serveFew } from '../sys/few-connections.ts';
import { startTimer } from '../wait.ts';
import type { Sources } from './sources.ts';

export interface Page {
  readonly script: string;
  readonly style: string;
}

interface UiOptions {
  readonly page: Page;
  readonly sources: Sources;
  /** 0 for a free one. */
  readonly port: number;
  /** Time without a request after which the server ends, in milliseconds. */
  readonly idleMs: number;
}

export interface UiServer {
  /** The address to open, with the one-time token. */
  readonly url: string;
  /** Resolves when the server has been idle for too long, or was stopped. */
  readonly ended: Promise<'idle' | 'stopped'>;
  stop(): void;
}

const LOOPBACK = '127.0.0.1';

/**
 * Listens on the loopback device only.
 * @throws Error if the port is taken
 */
export function serveUi({ page, sources, port, idleMs }: UiOptions): UiServer {
  const session = createSession();
  const files = new Map([
    ['', ['html', PAGE]],
    ['page.js', ['javascript', page.script]],
    ['page.css', ['css', page.style]],
  ]);
  const { promise: ended, resolve: end } = Promise.withResolvers<'idle' | 'stopped'>();
  let idle: Timer | undefined;
  const restart = (): void => {
    clearTimeout(idle);
    idle = startTimer(() => stop('idle'), idleMs);
  };
  const server = serveFew({ hostname: LOOPBACK, port }, answer);

  function stop(why: 'idle' | 'stopped'): void {
    clearTimeout(idle);
    server.stop();
    end(why);
  }

  async function answer(request: Request): Promise<Response> {
    const refusal = findRefusal(request, server.port);
    if (refusal !== undefined) return tell(refusal.status, refusal.why);
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === '/') {
      const cookie = session.redeem(searchParams.get('token') ?? '');
      if (cookie === undefined) return tell(403, VOID_TOKEN);
      restart();
      const headers = { ...headersOf('text/html; charset=utf-8'), 'set-cookie': cookie };
      return new Response(forward(session.folder), { headers });
    }
    if (!pathname.startsWith(session.folder) || !session.admits(request.headers.get('cookie')))
      return tell(403, VOID_TOKEN);
    restart();
    return answerPath(pathname.slice(session.folder.length), request);
  }

  async function answerPath(path: string, request: Request): Promise<Response> {
    const [type, file] = files.get(path) ?? [];
    if (type) return new Response(file, { headers: headersOf(`text/${type}; charset=utf-8`) });
    const found = path.startsWith('api/') ? sources.answer(path.slice('api/'.length)) : undefined;
    return found === undefined ? tell(404, 'Cannot find this path') : answerWith(found, request);
  }

  restart();
  return {
    url: `http://${LOOPBACK}:${server.port}/?token=${session.token}`,
    ended,
    stop: () => stop('stopped'),
  };
}

/** An answer that the browser may keep as long as it is the same. */
async function answerWith(
  found: Promise<{ text: string; etag: string }>,
  request: Request,
): Promise<Response> {
  try {
    const { text, etag } = await found;
    const headers = { ...headersOf('application/json'), 'cache-control': 'no-cache', etag };
    return request.headers.get('if-none-match') === etag
      ? new Response(null, { status: 304, headers })
      : new Response(text, { headers });
  } catch (error) {
    return tell(503, (error as Error).message);
  }
}

const VOID_TOKEN =
  'Cannot open the page: its address works once, in one browser; run "catena ui" again for another';

/** With a redirection, a browser that follows a link from another site would not send the new cookie; with its own step it does. */
function forward(folder: string): string {
  return `<!doctype html><html lang="en"><title>catena</title><meta http-equiv="refresh" content="0;url=${folder}"><a href="${folder}">Continue</a></html>`;
}

const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M3 8a3 3 0 0 1 3-3h1v2H6a1 1 0 0 0 0 2h1v2H6a3 3 0 0 1-3-3m10 0a3 3 0 0 1-3 3H9V9h1a1 1 0 0 0 0-2H9V5h1a3 3 0 0 1 3 3M6 7.5h4v1H6z' fill='%23087f8c'/%3E%3C/svg%3E";

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>catena</title>
<link rel="icon" href="${ICON}">
<link rel="stylesheet" href="page.css">
<script type="module" src="page.js"></script>
</head>
<body><div id="app"></div><noscript>This page needs JavaScript.</noscript></body>
</html>
`;

function headersOf(type: string): Record<string, string> {
  return { ...HEADERS, 'content-type': type };
}

function tell(status: number, text: string): Response {
  return new Response(`${text}\n`, { status, headers: headersOf('text/plain; charset=utf-8') });
}

/** Names under which a browser on this host, or at the near end of an SSH tunnel, reaches the server. */
const HOSTS = ['127.0.0.1', 'localhost'];

/**
 * Refuses everything but GET, names that are not of the loopback device (a foreign name that was made to resolve to 127.0.0.1, DNS
 * rebinding), and requests that pages of another origin make a browser send.
 */
export function findRefusal(request: Request, port: number) {
  const { method, headers } = request;
  if (method !== 'GET') return { status: 405, why: 'Cannot serve this method: only GET is served' };
  const host = headers.get('host') ?? '';
  // Browsers leave out the port that the scheme has by default.
  if (!HOSTS.some(name => host === `${name}:${port}` || (port === 80 && host === name)))
    return {
      status: 421,
      why: `Cannot serve host "${host.slice(0, 100)}": open the page at 127.0.0.1:${port}`,
    };
  // Browsers of the last years send it with every request.
  const site = headers.get('sec-fetch-site') ?? 'none';
  if (site === 'same-origin' || site === 'none') return undefined;
  const isVisit =
    headers.get('sec-fetch-mode') === 'navigate' && headers.get('sec-fetch-dest') === 'document';
  return isVisit && new URL(request.url).pathname === '/'
    ? undefined
    : { status: 403, why: 'Cannot serve pages of other origins' };
}

/** The page may load its own script, style and data, and nothing else from anywhere; no other page may embed or read it. */
const HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

const COOKIE = 'catena-ui';

/**
 * Creates a session with 256 random bits for each of its secrets: one run of the server. The first browser that brings the token gets
 * it; the token is void then.
 */
export function createSession() {
  const [token, key, folder] = [secret(), secret(), `/${secret()}/`];
  let isRedeemed = false;
  return {
    /** To be given to the person at the terminal. */
    token,
    /**
     * The folder of the page in its address, with a slash at both ends. Browsers send a cookie to every port of a host; as its path is
     * unguessable, the cookie of this session reaches no other server on this host.
     */
    folder,
    /** Exchanges the token. @returns the value of `Set-Cookie`; undefined if the token is wrong or was used before */
    redeem(given: string): string | undefined {
      if (isRedeemed || !isSame(given, token)) return undefined;
      isRedeemed = true;
      return `${COOKIE}=${key}; Path=${folder}; HttpOnly; SameSite=Strict`;
    },
    /** Whether a request's `Cookie` header belongs to this session. */
    admits(cookies: string | null): boolean {
      if (!isRedeemed) return false;
      const values = (cookies ?? '').split(';').map(one => one.trim().split('='));
      return values.some(([name, value = '']) => name === COOKIE && isSame(value, key));
    },
  };
}

function secret(): string {
  return randomBytes(32).toString('base64url');
}

/** In a time that does not depend on where they differ. */
function isSame(a: string, b: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}
