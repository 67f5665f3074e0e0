// How is a message larger than the socket's buffer sent to the kernel?
import { Errno } from '../sys/errno.ts';
import { checked, errno, libc, ptr, SystemError } from '../sys/libc.ts';

/** sys/socket.h: like SO_SNDBUF, but can exceed net.core.wmem_max; needs CAP_NET_ADMIN in the first user namespace. */
const SOL_SOCKET = 1;
const SO_SNDBUFFORCE = 32;

/**
 * Sends everything as one message, as a transaction requires. Grows the socket's buffer if necessary: thousands of elements
 * need several megabytes.
 * @throws SystemError
 */
export function sendWhole(fd: number, buffer: Uint8Array): void {
  if (trySend(fd, buffer)) return;
  // The kernel doubles the value; a failure shows in the next send.
  const value = new Int32Array([buffer.length + 1024]);
  libc().setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, ptr(value), value.byteLength);
  if (trySend(fd, buffer)) return;
  throw new SystemError(
    `send a netlink request of ${buffer.length} bytes, more than the socket's buffer, which only root of the host may enlarge beyond net.core.wmem_max`,
    Errno.EMSGSIZE,
  );
}

/** @returns false when the message is too large */
function trySend(fd: number, buffer: Uint8Array): boolean {
  const sent = libc().send(fd, ptr(buffer), buffer.length, 0);
  if (Number(sent) < 0 && errno() === Errno.EMSGSIZE) return false;
  checked(sent, () => 'send a netlink request');
  return true;
}
