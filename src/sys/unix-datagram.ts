// How is a datagram sent to a unix socket, for example of the system's log daemon?
import { closeSync } from 'node:fs';
import { checked, errno, libc, ptr, SystemError } from './libc.ts';

// asm-generic/socket.h, bits/socket.h
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const MSG_NOSIGNAL = 0x4000;

/** sys/un.h: the size of `sun_path`, including the terminating zero. */
const PATH_BYTES = 108;

/** A non-blocking socket that sends to one path. */
export interface UnixDatagram {
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
    libc().socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
    () => 'open a unix datagram socket',
  );
  return {
    send(bytes) {
      const sent = libc().sendto(fd, ptr(bytes), bytes.length, MSG_NOSIGNAL, ptr(address), address.length);
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
  const bytes = new Uint8Array(2 + name.length + 1);
  new DataView(bytes.buffer).setUint16(0, AF_UNIX, true);
  bytes.set(name, 2);
  return bytes;
}
