// How does a service talk to systemd: the sockets that it is given, its state, and its log?

import { read } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { Errno } from './errno.ts';
import { AF, checked, errno, lazyLibc, libc, MSG, ptr, SOCK, SOL_SOCKET, SystemError } from './libc.ts';

const functions = lazyLibc({
  accept4: { args: ['i32', 'ptr', 'ptr', 'i32'], returns: 'i32' },
  fcntl: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
  getsockname: { args: ['i32', 'ptr', 'ptr'], returns: 'i32' },
  getsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'ptr'], returns: 'i32' },
});

/** sd-daemon.h: SD_LISTEN_FDS_START */
const FIRST_FD = 3;
/** More than any unit of ours opens. */
const MOST_FDS = 16;
// asm-generic/socket.h, fcntl.h
const SO_ACCEPTCONN = 30;
const [F_SETFD, F_GETFL, F_SETFL] = [2, 3, 4];
const FD_CLOEXEC = 1;
const O_NONBLOCK = 0o4000;
/** sys/un.h: struct sockaddr_un */
const ADDRESS_BYTES = 110;

export interface ListeningSocket {
  readonly path: string;
  /** Accepts a connection that waits. @returns its descriptor; undefined if none waits */
  accept(): number | undefined;
}

/**
 * The unix sockets among the descriptors that were passed (sd_listen_fds(3)). The variables are removed: they are not for children
 * of this process.
 */
export function takeListeningSockets(
  env: Record<string, string | undefined> = process.env,
): readonly ListeningSocket[] {
  const { LISTEN_PID, LISTEN_FDS } = env;
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete env[name];
  const count = Number(LISTEN_FDS);
  if (Number(LISTEN_PID) !== process.pid || !Number.isInteger(count) || count <= 0) return [];
  const { fcntl } = functions();
  return Array.from({ length: Math.min(count, MOST_FDS) }, (_, i) => FIRST_FD + i).flatMap(fd => {
    const path = listeningPath(fd);
    if (path === undefined) return [];
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
    return [{ path, accept: () => accept(fd) }];
  });
}

function accept(fd: number): number | undefined {
  for (;;) {
    const accepted = functions().accept4(fd, null, null, SOCK.NONBLOCK | SOCK.CLOEXEC);
    if (accepted >= 0) return accepted;
    if (errno() !== Errno.EINTR) return undefined;
  }
}

/** The path of a listening unix socket; undefined for any other descriptor. */
function listeningPath(fd: number): string | undefined {
  const { getsockname, getsockopt } = functions();
  const [listens, size] = [new Int32Array(1), Uint32Array.of(4)];
  const isListening = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, ptr(listens), ptr(size)) === 0;
  if (!isListening || read.i32(ptr(listens), 0) !== 1) return undefined;
  const [address, length] = [new Uint8Array(ADDRESS_BYTES), Uint32Array.of(ADDRESS_BYTES)];
  if (getsockname(fd, ptr(address), ptr(length)) !== 0 || address[0] !== AF.UNIX) return undefined;
  const name = new TextDecoder().decode(address.subarray(2, Math.min(length[0] ?? 0, ADDRESS_BYTES)));
  const path = name.replace(/\0+$/, '');
  return path.startsWith('/') ? path : undefined;
}

/** sys/un.h: the size of `sun_path`, including the terminating zero of a path. */
const PATH_BYTES = 108;

/**
 * Sends a state such as `READY=1` to the service manager that started this process. Does nothing without one, and ignores
 * a failure to reach it. Same as: `systemd-notify READY=1`
 * @param socket `NOTIFY_SOCKET`: a path, or a name in the abstract namespace that starts with `@`
 */
export function notifyServiceManager(
  state: string,
  socket: string | undefined = process.env.NOTIFY_SOCKET,
): void {
  const name = Buffer.from(socket ?? '');
  if (name.length === 0 || name.length >= PATH_BYTES) return;
  if (name[0] === '@'.charCodeAt(0)) name[0] = 0;
  const address = addressOf(name);
  const fd = libc().socket(AF.UNIX, SOCK.DGRAM | SOCK.CLOEXEC, 0);
  if (fd < 0) return;
  const data = Buffer.from(state);
  libc().sendto(fd, ptr(data), data.length, 0, ptr(address), address.length);
  closeSync(fd);
}

/** A non-blocking socket that sends to one path. */
interface UnixDatagram {
  /**
   * Sends one datagram. The path is looked up each time, so the receiver may be restarted.
   * @throws SystemError when there is no receiver, the datagram is too big, or the receiver does not keep up
   */
  send(bytes: Uint8Array): void;
  close(): void;
}

/**
 * Opens a socket for datagrams to a path, which need not exist yet.
 * Same as: `socat - UNIX-SENDTO:<path>`
 */
export function openUnixDatagram(path: string): UnixDatagram {
  const address = encodePath(path);
  const fd = checked(
    libc().socket(AF.UNIX, SOCK.DGRAM | SOCK.NONBLOCK | SOCK.CLOEXEC, 0),
    () => 'open a unix datagram socket',
  );
  return {
    send(bytes) {
      const sent = libc().sendto(fd, ptr(bytes), bytes.length, MSG.NOSIGNAL, ptr(address), address.length);
      if (Number(sent) < 0) throw new SystemError(`send to "${path}"`, errno());
    },
    close: () => closeSync(fd),
  };
}

/** sys/un.h: struct sockaddr_un */
function encodePath(path: string): Uint8Array {
  const name = new TextEncoder().encode(path);
  if (name.length >= PATH_BYTES || name.includes(0))
    throw new Error(
      `Cannot use socket "${path}": its path must be shorter than ${PATH_BYTES} bytes, without zeros`,
    );
  return addressOf(Buffer.from(`${path}\0`));
}

function addressOf(name: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(2 + name.length);
  new DataView(bytes.buffer).setUint16(0, AF.UNIX, true);
  bytes.set(name, 2);
  return bytes;
}
