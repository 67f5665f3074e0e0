// Does an address answer, does traffic pass between two namespaces, which source address does the other side see, and how fast is it?
import { describeError, succeeds } from '../cni/errors.ts';
import { checksum, type Ip, ipFromBytes, ipToBytes, sameIp } from '../net/ip.ts';
import { renderErrno } from '../sys/errno.ts';
import {
  acceptSocket,
  bindSocket,
  closeSocket,
  connectSocket,
  type InetSocket,
  openSocket,
  POLLIN,
  POLLOUT,
  receiveBytes,
  sendBytes,
  sendBytesTo,
  takeError,
  waitFor,
} from '../sys/inet-socket.ts';
import { inNetns, type Netns } from '../sys/netns.ts';

/** Maximum wait for an answer: duplicate address detection, and several attempts of the kernel to find a neighbour or to connect. */
const DEADLINE_MS = 3_000;
/** An unanswered datagram or echo request is sent again after this time. */
const RESEND_MS = 300;
/** A server may have to ask another one first. */
const DNS_RESEND_MS = 1_000;
const CHUNK_BYTES = 1 << 16;
/** What is received: no two are needed at once. */
const INTO = new Uint8Array(CHUNK_BYTES);

/** The two ends: the server listens in its namespace, the client calls an address that should lead to it. */
interface Route {
  readonly server: Netns;
  readonly port: number;
  readonly client: Netns;
  readonly to: Ip;
  readonly toPort: number;
  /** The server's address: every one of its namespace unless given. */
  readonly at?: Ip | undefined;
  /** The client's address; chosen by the kernel unless given. */
  readonly source?: Ip | undefined;
}

type Conversation =
  | {
      readonly answered: true;
      readonly ms: number /** The client as the server saw it. */;
      readonly peer: Ip;
    }
  | { readonly answered: false; readonly why: string };

/** Sends a text over TCP and waits for its echo. */
export function talkTcp(route: Route): Conversation {
  const started = performance.now();
  return withEnds('tcp', route, (listener, client) => {
    connectSocket(client, { address: ipToBytes(route.to), port: route.toPort });
    const accepted = waitUntil(started, [[listener, POLLIN]], () => acceptSocket(listener), client);
    if (accepted === undefined) {
      const problem = takeError(client);
      return silent(problem ? renderErrno(problem) : 'no connection');
    }
    const { socket: server, from } = accepted;
    try {
      const text = new TextEncoder().encode('catena');
      waitFor([[client, POLLOUT]], DEADLINE_MS);
      sendBytes(client, text);
      const heard = waitUntil(started, [[server, POLLIN]], () => receiveBytes(server, INTO));
      if (heard === undefined) return silent('the connection is established, but nothing arrives');
      sendBytes(server, heard.bytes);
      const echoed = waitUntil(started, [[client, POLLIN]], () => receiveBytes(client, INTO));
      if (echoed === undefined) return silent('the connection is established, but no reply arrives');
      return { answered: true, ms: performance.now() - started, peer: ipFromBytes(from.address) };
    } finally {
      closeSocket(server);
    }
  });
}

/** Opens a connection to a server that exists, and closes it again. @returns milliseconds, or why there is none */
export function knock(from: Netns, to: Ip, port: number, patienceMs: number): number | string {
  const started = performance.now();
  return withSocket('tcp', from, to.family, client => {
    try {
      connectSocket(client, { address: ipToBytes(to), port });
      const isOpen = waitFor([[client, POLLOUT]], patienceMs);
      const problem = takeError(client);
      if (problem) return renderErrno(problem);
      return isOpen ? performance.now() - started : 'no reply';
    } catch (error) {
      return describeError(error);
    }
  });
}

/** A query for the name servers of the root (RFC 1035, section 4.1), which every server may answer, be it by a refusal. */
const QUERY = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1] as const;

/** Asks a DNS server over UDP. @returns milliseconds until any answer to the query; undefined when there is none */
export function askDns(from: Netns, to: Ip, port = 53): number | undefined {
  const started = performance.now();
  return withSocket('udp', from, to.family, client => {
    try {
      connectSocket(client, { address: ipToBytes(to), port });
      const query = new Uint8Array(QUERY);
      new DataView(query.buffer).setUint16(0, identifier());
      while (performance.now() - started < DEADLINE_MS) {
        sendBytes(client, query);
        waitFor([[client, POLLIN]], DNS_RESEND_MS);
        const { bytes } = receiveBytes(client, INTO) ?? {};
        if (bytes?.[0] === query[0] && bytes?.[1] === query[1]) return performance.now() - started;
        // A refusal comes at once, and the server may be starting.
        if (bytes === undefined && takeError(client)) Bun.sleepSync(RESEND_MS);
      }
      return undefined;
    } catch {
      return undefined;
    }
  });
}

/** Sends a datagram and waits for its echo, with repetitions in case of loss. */
export function talkUdp(route: Route): Conversation {
  const started = performance.now();
  return withEnds('udp', route, (server, client) => {
    connectSocket(client, { address: ipToBytes(route.to), port: route.toPort });
    let arrived = false;
    while (performance.now() - started < DEADLINE_MS) {
      sendBytes(client, new TextEncoder().encode('catena'));
      waitFor([[server, POLLIN]], RESEND_MS);
      const heard = receiveBytes(server, INTO);
      if (heard?.from === undefined) continue;
      arrived = true;
      sendBytesTo(server, heard.bytes, heard.from);
      waitFor([[client, POLLIN]], RESEND_MS);
      if (receiveBytes(client, INTO) === undefined) continue;
      return {
        answered: true,
        ms: performance.now() - started,
        peer: ipFromBytes(heard.from.address),
      };
    }
    return silent(arrived ? 'it arrives, but no reply comes back' : 'nothing arrives');
  });
}

const STEADY_AFTER_MS = 300;
const MEASURE_MS = 1_000;

/**
 * Bits per second received over TCP, at a port that the kernel chooses; undefined when no connection is established.
 * @param sender which end sends
 * @param burstBytes that a token bucket passes at once: what is measured comes after them
 */
export function measureRate(
  ends: Pick<Route, 'server' | 'client' | 'to'>,
  sender: 'server' | 'client',
  burstBytes: number,
): number | undefined {
  const opened = performance.now();
  return withEnds('tcp', { ...ends, port: 0, toPort: 0 }, (listener, client, port) => {
    connectSocket(client, { address: ipToBytes(ends.to), port });
    const accepted = waitUntil(opened, [[listener, POLLIN]], () => acceptSocket(listener), client);
    if (accepted === undefined) return undefined;
    const { socket: server } = accepted;
    const [from, to] = sender === 'client' ? [client, server] : [server, client];
    const chunk = new Uint8Array(CHUNK_BYTES);
    const started = performance.now();
    let received = 0;
    let steady: { at: number; bytes: number } | undefined;
    try {
      for (;;) {
        let moved = sendBytes(from, chunk);
        for (let got = receiveBytes(to, INTO); got?.bytes.length; got = receiveBytes(to, INTO)) {
          received += got.bytes.length;
          moved += got.bytes.length;
        }
        const now = performance.now();
        if (steady === undefined && now - started > STEADY_AFTER_MS && received > burstBytes) {
          steady = { at: now, bytes: received };
        }
        if (steady !== undefined && now - steady.at > MEASURE_MS) {
          return ((received - steady.bytes) * 8000) / (now - steady.at);
        }
        // Measure even traffic so slow that the burst has not yet passed.
        if (now - started > STEADY_AFTER_MS + 4 * MEASURE_MS) return (received * 8000) / (now - started);
        if (moved === 0) waitFor([[to, POLLIN]], 5);
      }
    } finally {
      closeSocket(server);
    }
  });
}

/** Opens both ends, each in its namespace, and always closes them. */
function withEnds<T>(
  transport: 'tcp' | 'udp',
  route: Route,
  talk: (server: InetSocket, client: InetSocket, port: number) => T,
): T {
  const { family } = route.to;
  return withSocket(transport, route.server, family, server => {
    const at = route.at && { address: ipToBytes(route.at) };
    const { port } = bindSocket(server, transport, route.port, at);
    return withSocket(transport, route.client, family, client => {
      sendFrom(client, route.source);
      return talk(server, client, port);
    });
  });
}

function sendFrom(client: InetSocket, source: Ip | undefined): void {
  // Unlike a server's TCP socket, this one must not listen.
  if (source) bindSocket(client, 'udp', 0, { address: ipToBytes(source) });
}

function withSocket<T>(
  transport: 'tcp' | 'udp' | 'icmp',
  netns: Netns,
  family: 4 | 6,
  use: (socket: InetSocket) => T,
): T {
  const socket = inNetns(netns, () => openSocket(transport, family));
  try {
    return use(socket);
  } finally {
    closeSocket(socket);
  }
}

/** Retries whenever one of the sockets is ready, until there is an answer, the time is over or the client failed. */
function waitUntil<T>(
  started: number,
  wanted: readonly (readonly [InetSocket, number])[],
  ask: () => T | undefined,
  client?: InetSocket,
): T | undefined {
  const sockets = client ? [...wanted, [client, 0] as const] : wanted;
  for (;;) {
    const answer = ask();
    if (answer !== undefined) return answer;
    const left = DEADLINE_MS - (performance.now() - started);
    if (left <= 0) return undefined;
    waitFor(sockets, left);
    if (client && waitFor([[client, 0]], 0)) {
      // An error or hang-up of the client: try once more, then give up.
      return ask();
    }
  }
}

function silent(why: string): Conversation {
  return { answered: false, why };
}

/** RFC 792, RFC 4443 */
const ECHO = { 4: { request: 8, reply: 0 }, 6: { request: 128, reply: 129 } } as const;
const HEADER_BYTES = 8;

/**
 * Sends echo requests until one is answered.
 * @param scope interface index, for link-local addresses
 * @param source address to send from; chosen by the kernel unless given
 * @returns milliseconds until the answer; undefined when there is none. Same as: `ping -c 1`
 */
export function ping(
  from: Netns,
  to: Ip,
  scope = 0,
  patienceMs = DEADLINE_MS,
  source?: Ip,
): number | undefined {
  const started = performance.now();
  return withSocket('icmp', from, to.family, socket => {
    let isBound = false;
    for (let sequence = 1; performance.now() - started < patienceMs; sequence++) {
      const sent = performance.now();
      isBound ||= succeeds(() => sendFrom(socket, source));
      if (!isBound || !trySend(socket, to, scope, sequence)) {
        // The interface's address may still be tentative, so that nothing is sent from it, and there is no route yet.
        Bun.sleepSync(RESEND_MS);
        continue;
      }
      while (waitFor([[socket, POLLIN]], RESEND_MS - (performance.now() - sent))) {
        if (isReply(socket, to, sequence)) return performance.now() - sent;
        if (performance.now() - sent > RESEND_MS) break;
      }
    }
    return undefined;
  });
}

function trySend(socket: InetSocket, to: Ip, scope: number, sequence: number): boolean {
  const request = encodeRequest(to.family, sequence);
  return succeeds(() => sendBytesTo(socket, request, { address: ipToBytes(to), port: 0, scope }));
}

/** A raw socket receives every ICMP message of the namespace, in IPv4 including the IP header. */
function isReply(socket: InetSocket, to: Ip, sequence: number): boolean {
  const got = receiveBytes(socket, new Uint8Array(2048));
  if (got?.from === undefined || !sameIp(ipFromBytes(got.from.address), to)) return false;
  const start = to.family === 4 ? ((got.bytes[0] ?? 0) & 0xf) * 4 : 0;
  const message = got.bytes.subarray(start);
  if (message.length < HEADER_BYTES || message[0] !== ECHO[to.family].reply) return false;
  const view = new DataView(message.buffer, message.byteOffset);
  return view.getUint16(4) === identifier() && view.getUint16(6) === sequence;
}

/** Type, code, checksum, identifier, sequence number. The kernel computes the checksum of ICMPv6. */
function encodeRequest(family: 4 | 6, sequence: number): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, ECHO[family].request);
  view.setUint16(4, identifier());
  view.setUint16(6, sequence);
  if (family === 4) view.setUint16(2, checksum(bytes));
  return bytes;
}

function identifier(): number {
  return process.pid & 0xffff;
}
