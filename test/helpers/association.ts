// Can an SCTP association be established, and which client address does the server see? For kernels with SCTP.

import { dlopen, FFIType, ptr } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { type Ip, ipFromBytes, ipToBytes, parseIp, renderIp } from '../../src/net/ip.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { deadline } from './deadline.ts';
import type { Namespace } from './netns.ts';
import type { Need } from './skip.ts';

/** bits/socket.h, netinet/in.h */
const AF = { 4: 2, 6: 10 } as const;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const IPPROTO_SCTP = 132;
const MSG_NOSIGNAL = 0x4000;
const TEXT = 'hello';

const { i32, i64, u64, ptr: pointer } = FFIType;
const libc = dlopen('libc.so.6', {
  socket: { args: [i32, i32, i32], returns: i32 },
  bind: { args: [i32, pointer, i32], returns: i32 },
  listen: { args: [i32, i32], returns: i32 },
  connect: { args: [i32, pointer, i32], returns: i32 },
  accept4: { args: [i32, pointer, pointer, i32], returns: i32 },
  getsockname: { args: [i32, pointer, pointer], returns: i32 },
  send: { args: [i32, pointer, u64, i32], returns: i64 },
  recv: { args: [i32, pointer, u64, i32], returns: i64 },
}).symbols;

/** Needs a kernel with SCTP. */
export function requiresSctp(): Need {
  const socket = libc.socket(AF[4], SOCK_STREAM, IPPROTO_SCTP);
  if (socket < 0) return 'needs a kernel with SCTP';
  closeSync(socket);
  return undefined;
}

/** A socket that listens for associations. */
export interface SctpServer {
  /**
   * Establishes an association from a namespace, sends a word and waits for its echo. Each end has only one address: further ones
   * would pass the packet filter untranslated, and be unknown to the other side.
   *
   * @returns the client's address as the server sees it; undefined if no association is established in time
   */
  peerSeen(from: Namespace, address: string, port: number, timeoutMs?: number): Promise<string | undefined>;
  close(): void;
}

/** Listens on an address of the namespace. */
export function listenSctp(ns: Namespace, address: string, port: number): SctpServer {
  const at = parseIp(address);
  const server = within(ns, () => libc.socket(AF[at.family], SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SCTP));
  const own = sockaddr(at, port);
  if (libc.bind(server, ptr(own), own.length) !== 0 || libc.listen(server, 8) !== 0) {
    throw new Error(`Cannot listen on SCTP port ${port} of "${address}"`);
  }
  return {
    async peerSeen(from, to, toPort, timeoutMs = 10_000) {
      const giveUpAt = Date.now() + deadline(timeoutMs);
      const client = within(from, () => connect(sockaddr(parseIp(to), toPort), at.family));
      const peer = new Uint8Array(28);
      const length = new Uint32Array([peer.length]);
      const accepted = await until(giveUpAt, () =>
        libc.accept4(server, ptr(peer), ptr(length), SOCK_NONBLOCK),
      );
      try {
        if (accepted === undefined) return undefined;
        const passed =
          (await passes(client, accepted, giveUpAt)) && (await passes(accepted, client, giveUpAt));
        return passed ? addressIn(peer, at.family) : undefined;
      } finally {
        for (const socket of [client, accepted]) if (socket !== undefined) closeSync(socket);
      }
    },
    close: () => closeSync(server),
  };
}

/** A client bound to the one address from which packets to the server are sent. */
function connect(to: Uint8Array, family: 4 | 6): number {
  const own = new Uint8Array(to.length);
  const probe = libc.socket(AF[family], SOCK_DGRAM, 0);
  const routed =
    libc.connect(probe, ptr(to), to.length) === 0 &&
    libc.getsockname(probe, ptr(own), ptr(new Uint32Array([own.length]))) === 0;
  closeSync(probe);
  own.fill(0, 2, 4);
  const socket = libc.socket(AF[family], SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SCTP);
  if (!routed || libc.bind(socket, ptr(own), own.length) !== 0) throw new Error('Cannot bind an SCTP socket');
  libc.connect(socket, ptr(to), to.length);
  return socket;
}

async function passes(from: number, to: number, giveUpAt: number): Promise<boolean> {
  const [sent, got] = [Buffer.from(TEXT), Buffer.alloc(16)];
  const send = (): number => Number(libc.send(from, ptr(sent), BigInt(sent.length), MSG_NOSIGNAL));
  if ((await until(giveUpAt, send)) === undefined) return false;
  const length = await until(giveUpAt, () => Number(libc.recv(to, ptr(got), BigInt(got.length), 0)));
  return got.toString('utf8', 0, length) === TEXT;
}

/** Retries a non-blocking call and returns its result once it is not an error. */
async function until(giveUpAt: number, attempt: () => number): Promise<number | undefined> {
  do {
    const returned = attempt();
    if (returned >= 0) return returned;
    await Bun.sleep(5);
  } while (Date.now() < giveUpAt);
  return undefined;
}

/** struct sockaddr_in and sockaddr_in6 */
function sockaddr(address: Ip, port: number): Uint8Array {
  const bytes = new Uint8Array(address.family === 4 ? 16 : 28);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, AF[address.family], true);
  view.setUint16(2, port);
  bytes.set(ipToBytes(address), address.family === 4 ? 4 : 8);
  return bytes;
}

function addressIn(bytes: Uint8Array, family: 4 | 6): string {
  return renderIp(ipFromBytes(family === 4 ? bytes.subarray(4, 8) : bytes.subarray(8, 24)));
}

function within(ns: Namespace, visit: () => number): number {
  const netns = openNetns(ns.path);
  try {
    return inNetns(netns, visit);
  } finally {
    closeNetns(netns);
  }
}
