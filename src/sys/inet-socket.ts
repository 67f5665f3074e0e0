// How can one thread use TCP, UDP and ICMP in several network namespaces at once?
//
// A socket belongs to the namespace in which it was opened, for its whole life. If each end is opened inside `inNetns`, one
// thread can be both server and client, without a helper process in any namespace. Nothing here blocks, except poll().
import { closeSync } from 'node:fs';
import { Errno } from './errno.ts';
import { AF, checked, errno, lazyLibc, libc, MSG, ptr, SOCK, SOL_SOCKET, SystemError } from './libc.ts';

/** netinet/in.h */
const IPPROTO_ICMP = 1;
const IPPROTO_ICMPV6 = 58;
/** asm-generic/socket.h */
const SO_REUSEADDR = 2;
const SO_ERROR = 4;
const EINPROGRESS = 115;

/** poll.h */
export const POLLIN = 1;
export const POLLOUT = 4;

/** Transport of a socket; `icmp` needs CAP_NET_RAW in its namespace. */
type Transport = 'tcp' | 'udp' | 'icmp';

/** One end of a connection: an address, and a port unless the transport has none. */
interface Endpoint {
  /** 4 or 16 bytes. */
  readonly address: Uint8Array;
  readonly port: number;
  /** Interface index, required for link-local IPv6 addresses. */
  readonly scope?: number;
}

export interface InetSocket {
  readonly fd: number;
  readonly family: 4 | 6;
}

/** Opens a socket in the namespace of the calling thread. */
export function openSocket(transport: Transport, family: 4 | 6): InetSocket {
  const kind = { tcp: SOCK.STREAM, udp: SOCK.DGRAM, icmp: SOCK.RAW }[transport];
  const protocol = transport === 'icmp' ? (family === 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) : 0;
  const fd = checked(
    libc().socket(family === 4 ? AF.INET : AF.INET6, kind | SOCK.NONBLOCK | SOCK.CLOEXEC, protocol),
    () => `open a ${transport} socket`,
  );
  return { fd, family };
}

/** Closes the socket; a peer is notified. */
export function closeSocket(socket: InetSocket): void {
  closeSync(socket.fd);
}

/**
 * Binds a port; TCP starts to listen. With port 0 the kernel chooses one.
 * @param at the address, with its scope; default: every address of the namespace
 */
export function bindSocket(
  socket: InetSocket,
  transport: Transport,
  port: number,
  at: Omit<Endpoint, 'port'> = { address: new Uint8Array(socket.family === 4 ? 4 : 16) },
): Endpoint {
  const yes = new Int32Array([1]);
  libc().setsockopt(socket.fd, SOL_SOCKET, SO_REUSEADDR, ptr(yes), 4);
  const address = encodeEndpoint({ ...at, port });
  checked(libc().bind(socket.fd, ptr(address), address.length), () => `bind ${transport} port ${port}`);
  if (transport === 'tcp') checked(functions().listen(socket.fd, 8), () => `listen on port ${port}`);
  const { bytes, length } = addressBuffer();
  checked(functions().getsockname(socket.fd, ptr(bytes), ptr(length)), () => 'find the port of a socket');
  return decodeEndpoint(bytes);
}

/** Starts to connect; `POLLOUT` reports completion, {@link takeError} the result. */
export function connectSocket(socket: InetSocket, to: Endpoint): void {
  const address = encodeEndpoint(to);
  if (functions().connect(socket.fd, ptr(address), address.length) === 0) return;
  const problem = errno();
  if (problem !== EINPROGRESS) throw new SystemError('connect', problem);
}

/** The socket's pending error as errno, which is cleared; 0 for none. */
export function takeError(socket: InetSocket): number {
  const value = new Int32Array(1);
  const length = new Int32Array([4]);
  functions().getsockopt(socket.fd, SOL_SOCKET, SO_ERROR, ptr(value), ptr(length));
  return value[0] ?? 0;
}

/** Accepts a pending connection and returns it with the peer's address; undefined when there is none. */
export function acceptSocket(socket: InetSocket): { socket: InetSocket; from: Endpoint } | undefined {
  const { bytes, length } = addressBuffer();
  const fd = functions().accept4(socket.fd, ptr(bytes), ptr(length), SOCK.NONBLOCK | SOCK.CLOEXEC);
  if (fd < 0) return nothingYet('accept a connection');
  return { socket: { fd, family: socket.family }, from: decodeEndpoint(bytes) };
}

/** Sends on a connected socket. @returns bytes accepted by the kernel; 0 when its buffer is full */
export function sendBytes(socket: InetSocket, data: Uint8Array): number {
  const sent = Number(libc().send(socket.fd, ptr(data), data.length, MSG.NOSIGNAL));
  return sent < 0 ? (nothingYet('send') ?? 0) : sent;
}

export function sendBytesTo(socket: InetSocket, data: Uint8Array, to: Endpoint): void {
  const address = encodeEndpoint(to);
  const sent = libc().sendto(socket.fd, ptr(data), data.length, MSG.NOSIGNAL, ptr(address), address.length);
  if (Number(sent) < 0) nothingYet('send');
}

/** Received bytes, with the sender of a datagram; undefined when there are none yet, no bytes at the end of a stream. */
export function receiveBytes(
  socket: InetSocket,
  buffer: Uint8Array,
): { bytes: Uint8Array; from: Endpoint | undefined } | undefined {
  const { bytes: address, length } = addressBuffer();
  const got = functions().recvfrom(socket.fd, ptr(buffer), buffer.length, 0, ptr(address), ptr(length));
  if (Number(got) < 0) return nothingYet('receive');
  const from = (length[0] ?? 0) > 0 ? decodeEndpoint(address) : undefined;
  return { bytes: buffer.subarray(0, Number(got)), from };
}

/**
 * Waits until one of the sockets is ready.
 * @param wanted sockets with the events to wait for (`POLLIN`, `POLLOUT`)
 * @returns whether one became ready before the timeout
 */
export function waitFor(
  wanted: readonly (readonly [socket: InetSocket, events: number])[],
  timeoutMs: number,
): boolean {
  // poll.h: struct pollfd { int fd; short events; short revents; }
  const set = new DataView(new ArrayBuffer(wanted.length * 8));
  for (const [i, [socket, events]] of wanted.entries()) {
    set.setInt32(i * 8, socket.fd, true);
    set.setInt16(i * 8 + 4, events, true);
  }
  const bytes = new Uint8Array(set.buffer);
  return functions().poll(ptr(bytes), BigInt(wanted.length), Math.max(0, Math.ceil(timeoutMs))) > 0;
}

/** EAGAIN and similar errors mean "later"; a refused datagram is reported to the code that waits for the answer. */
function nothingYet(action: string): undefined {
  const problem = errno();
  const later: readonly number[] = [Errno.EAGAIN, Errno.EINTR, EINPROGRESS, Errno.ECONNREFUSED];
  if (later.includes(problem)) return undefined;
  throw new SystemError(action, problem);
}

/** netinet/in.h: struct sockaddr_in and struct sockaddr_in6 */
function encodeEndpoint({ address, port, scope = 0 }: Endpoint): Uint8Array {
  const v4 = address.length === 4;
  const bytes = new Uint8Array(v4 ? 16 : 28);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, v4 ? AF.INET : AF.INET6, true);
  view.setUint16(2, port, false);
  bytes.set(address, v4 ? 4 : 8);
  if (!v4) view.setUint32(24, scope, true);
  return bytes;
}

function decodeEndpoint(bytes: Uint8Array): Endpoint {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const port = view.getUint16(2, false);
  if (view.getUint16(0, true) === AF.INET) return { address: bytes.slice(4, 8), port };
  return { address: bytes.slice(8, 24), port, scope: view.getUint32(24, true) };
}

function addressBuffer(): { bytes: Uint8Array; length: Int32Array } {
  return { bytes: new Uint8Array(28), length: new Int32Array([28]) };
}

const functions = lazyLibc({
  connect: { args: ['i32', 'ptr', 'i32'], returns: 'i32' },
  listen: { args: ['i32', 'i32'], returns: 'i32' },
  accept4: { args: ['i32', 'ptr', 'ptr', 'i32'], returns: 'i32' },
  recvfrom: { args: ['i32', 'ptr', 'u64', 'i32', 'ptr', 'ptr'], returns: 'i64' },
  getsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'ptr'], returns: 'i32' },
  getsockname: { args: ['i32', 'ptr', 'ptr'], returns: 'i32' },
  poll: { args: ['ptr', 'u64', 'i32'], returns: 'i32' },
});
