// Where can a scraper read the daemon's metrics over the network?
//
// Verbs are never served here: a connection to an address carries no user, so anyone who can reach it may read.
import { existsSync } from 'node:fs';
import { findIp, renderIp } from '../net/ip.ts';
import { type FewConnections, plainText, serveFew } from '../sys/few-connections.ts';

export interface MetricsAddress {
  /** An IP address; `::` for all, of both families. */
  readonly hostname: string;
  /** 1 to 65535. */
  readonly port: number;
}

interface MetricsPage {
  readonly contentType: string;
  render(): Promise<string>;
}

interface MetricsListenerEvents {
  /** The address cannot be used now; it is tried again every second. Reported once. */
  failing(problem: string): void;
  listening(): void;
}

const RETRY_MS = 1_000;

/**
 * Parses `<address>:<port>`; brackets around an IPv6 address are optional, since the last colon separates the port. All addresses
 * of the host are `*:<port>` only: 0.0.0.0 and :: are more often a habit than a decision.
 * @throws Error if it is something else
 */
export function parseMetricsAddress(text: string): MetricsAddress {
  const [, host = '', digits = ''] = /^(.*):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  const fail = (why: string) => new Error(`Cannot serve metrics at "${text}": ${why}`);
  if (port < 1 || port > 65_535) throw fail('expected <address>:<port>, such as 127.0.0.1:9464');
  if (host === '*') return { hostname: '::', port };
  const ip = findIp(host.replace(/^\[(.*:.*)\]$/, '$1'));
  if (ip === undefined) throw fail(`"${host}" is not an IP address`);
  if (ip.value === 0n)
    throw fail(`that is every address of this host; write "*:${port}" if it is what you want`);
  return { hostname: renderIp(ip), port };
}

/**
 * Serves `GET /metrics` and `GET /healthz` at an address, as soon as it can be used: a predecessor that finishes its requests
 * still has it, and at boot it may not exist yet.
 * @returns a function that stops this, and closes every connection
 */
export function listenForMetrics(
  { hostname, port }: MetricsAddress,
  page: MetricsPage,
  events: MetricsListenerEvents,
): () => void {
  let server: FewConnections | undefined;
  let retry: Timer | undefined;
  let hasFailed = false;
  let rendering: Promise<string> | undefined;

  /** Scrapers that come at the same time share one page, so that many of them cost no more than one. */
  function render(): Promise<string> {
    rendering ??= page.render().finally(() => (rendering = undefined));
    return rendering;
  }

  async function serve(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (pathname !== '/metrics' && pathname !== '/healthz') return plainText(404, 'no such path');
    if (request.method !== 'GET') return plainText(405, 'only GET is served', { allow: 'GET' });
    if (pathname === '/healthz') return plainText(200, 'ok');
    return new Response(await render(), { headers: { 'content-type': page.contentType } });
  }

  function open(): void {
    try {
      // A kernel may lack the family of "every address", `::`.
      const isThere = hostname !== '::' || existsSync('/proc/net/if_inet6');
      server = serveFew({ hostname: isThere ? hostname : '0.0.0.0', port }, serve);
      events.listening();
    } catch (error) {
      if (!hasFailed) events.failing((error as Error).message);
      hasFailed = true;
      retry = setTimeout(open, RETRY_MS);
      retry.unref();
    }
  }

  open();
  return () => {
    clearTimeout(retry);
    server?.stop();
  };
}
