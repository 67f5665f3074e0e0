// How is the page served, to one browser and for one session?

import { serveFew } from '../sys/few-connections.ts';
import { startTimer } from '../wait.ts';
import { findRefusal, HEADERS } from './refusal.ts';
import { createSession } from './session.ts';
import type { Sources } from './sources.ts';

/** The bundled page. */
export interface Page {
  readonly script: string;
  readonly style: string;
}

/** What the caller chooses. */
export interface UiOptions {
  readonly page: Page;
  readonly sources: Sources;
  /** 0 for a free one. */
  readonly port: number;
  /** Time without a request after which the server ends, in milliseconds. */
  readonly idleMs: number;
}

/** A running server. */
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
      return new Response(forward(session.folder), { headers: { ...html(), 'set-cookie': cookie } });
    }
    if (!pathname.startsWith(session.folder) || !session.admits(request.headers.get('cookie')))
      return tell(403, VOID_TOKEN);
    restart();
    return answerPath(pathname.slice(session.folder.length), request);
  }

  async function answerPath(path: string, request: Request): Promise<Response> {
    if (path === '') return new Response(PAGE, { headers: html() });
    if (path === 'page.js')
      return new Response(page.script, { headers: headersOf('text/javascript; charset=utf-8') });
    if (path === 'page.css')
      return new Response(page.style, { headers: headersOf('text/css; charset=utf-8') });
    const found = path.startsWith('api/') ? sources.answer(path.slice('api/'.length)) : undefined;
    if (found === undefined) return tell(404, 'Cannot find this path');
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

  restart();
  return {
    url: `http://${LOOPBACK}:${server.port}/?token=${session.token}`,
    ended,
    stop: () => stop('stopped'),
  };
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

function html(): Record<string, string> {
  return headersOf('text/html; charset=utf-8');
}

function headersOf(type: string): Record<string, string> {
  return { ...HEADERS, 'content-type': type };
}

function tell(status: number, text: string): Response {
  return new Response(`${text}\n`, { status, headers: headersOf('text/plain; charset=utf-8') });
}
