// How is HTTP served to anyone who can connect, with a few connections at a time?
//
// Each connection is a descriptor, and the server of Bun has no limit: strangers would use up those that the process needs for its
// work. Here the oldest one goes when another one comes, and each has one request, without a body.

export interface FewConnections {
  readonly port: number;
  /** Closes every connection, too. */
  stop(): void;
}

const MOST_CONNECTIONS = 16;
const REQUEST_MS = 10_000;
/** Time until the answer has been read, which the doctor of a large node may take long to give. */
const ANSWER_MS = 255_000;
const REQUEST_BYTES = 16_384;

interface Connection {
  received: string;
  /** What the kernel has not taken yet; undefined before the answer. */
  rest: Uint8Array | undefined;
  timer: Timer;
}

/**
 * Serves an address.
 * @param hostname an IP address; `::` for all
 * @param port 0 for a free one
 * @throws Error if the address cannot be used
 */
export function serveFew(
  { hostname, port }: { readonly hostname: string; readonly port: number },
  answer: (request: Request) => Promise<Response>,
): FewConnections {
  const open = new Set<Bun.Socket<Connection>>();
  const drop = (socket: Bun.Socket<Connection>): void => {
    open.delete(socket);
    clearTimeout(socket.data.timer);
    socket.terminate();
  };

  async function respond(socket: Bun.Socket<Connection>, head: string): Promise<void> {
    const request = parseRequest(head);
    const response =
      request instanceof Request
        ? await answer(request).catch(error => plainText(500, (error as Error).message))
        : plainText(request, 'this request cannot be served');
    const rest = await encodeResponse(response, head.startsWith('HEAD '));
    if (!open.has(socket)) return;
    clearTimeout(socket.data.timer);
    socket.data = { received: '', rest, timer: setTimeout(() => drop(socket), ANSWER_MS) };
    flush(socket);
  }

  const listener = Bun.listen<Connection>({
    hostname,
    port,
    exclusive: true,
    socket: {
      open(socket) {
        socket.data = { received: '', rest: undefined, timer: setTimeout(() => drop(socket), REQUEST_MS) };
        open.add(socket);
        const [oldest] = open;
        if (open.size > MOST_CONNECTIONS && oldest) drop(oldest);
      },
      data(socket, bytes) {
        const { data } = socket;
        if (data.received.includes(END) || data.rest) return;
        data.received += bytes.toString('latin1');
        const end = data.received.indexOf(END);
        if (end >= 0) void respond(socket, data.received.slice(0, end));
        else if (data.received.length > REQUEST_BYTES) drop(socket);
      },
      drain: flush,
      close(socket) {
        open.delete(socket);
        clearTimeout(socket.data.timer);
      },
      error: drop,
    },
  });
  return {
    port: listener.port,
    stop() {
      listener.stop(true);
      for (const socket of open) drop(socket);
    },
  };
}

function flush(socket: Bun.Socket<Connection>): void {
  const { rest } = socket.data;
  if (rest === undefined) return;
  socket.data.rest = rest.subarray(Math.max(0, socket.write(rest)));
  if (socket.data.rest.length === 0) socket.end();
}

export function plainText(status: number, text: string, headers: Record<string, string> = {}): Response {
  return new Response(`${text}\n`, { status, headers: { 'content-type': 'text/plain', ...headers } });
}

const END = '\r\n\r\n';
const BAD_REQUEST = 400;
const TOO_LARGE = 413;

/** @returns the status of the answer if it is no request that is served here */
function parseRequest(head: string): Request | number {
  const [first = '', ...lines] = head.split('\r\n');
  const [, method, target] = /^([A-Z]+) (\/\S*) HTTP\/1\.[01]$/.exec(first) ?? [];
  if (method === undefined) return BAD_REQUEST;
  try {
    const headers = new Headers();
    for (const line of lines) {
      const colon = line.indexOf(':');
      headers.append(line.slice(0, colon), line.slice(colon + 1).trim());
    }
    const hasBody = headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) !== 0;
    if (hasBody) return TOO_LARGE;
    return new Request(`http://${headers.get('host') ?? 'localhost'}${target}`, { method, headers });
  } catch {
    return BAD_REQUEST;
  }
}

async function encodeResponse(response: Response, isHead: boolean): Promise<Uint8Array> {
  const body = new Uint8Array(await response.arrayBuffer());
  const { status, headers } = response;
  headers.set('content-length', String(body.length));
  headers.set('connection', 'close');
  const lines = Array.from(headers, ([name, value]) => `${name}: ${value}`);
  const head = Buffer.from(
    [`HTTP/1.1 ${status} ${status < BAD_REQUEST ? 'OK' : 'Refused'}`, ...lines, '', ''].join('\r\n'),
  );
  return isHead ? head : Buffer.concat([head, body]);
}
