// Which requests are refused before anything is looked at, and which headers does every answer have?

/** Why a request is refused. */
export interface Refusal {
  readonly status: number;
  readonly why: string;
}

/** Names under which a browser on this host, or at the near end of an SSH tunnel, reaches the server. */
const HOSTS = ['127.0.0.1', 'localhost'];

/**
 * Refuses everything but GET, names that are not of the loopback device (a foreign name that was made to resolve to 127.0.0.1, DNS
 * rebinding), and requests that pages of another origin make a browser send.
 */
export function findRefusal(request: Request, port: number): Refusal | undefined {
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
export const HEADERS: Readonly<Record<string, string>> = {
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
