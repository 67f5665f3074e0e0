// How are the kernel's answers read from a socket and split into messages?
import { Errno } from '../sys/errno.ts';
import { errno, libc, ptr, SystemError } from '../sys/libc.ts';
import { decodeMessages, type Envelope } from './codec/message.ts';
import { traceMessages } from './trace.ts';

/** sys/socket.h */
const MSG_DONTWAIT = 0x40;

/** The kernel packs the messages of a dump into datagrams of at most this size. */
const RECEIVE_BYTES = 1 << 18;

/** More datagrams than any dump consists of. */
const MAX_UNREAD = 100_000;

/**
 * Waits for the next datagram; returns nothing when a signal interrupted the wait.
 * @param only see {@link decodeMessages}
 * @throws SystemError on a timeout, or when the socket's buffer overflowed; nothing is left unread then
 */
export function receiveMessages(fd: number, protocol: number, only?: readonly Uint8Array[]): Envelope[] {
  const received = Number(libc().recv(fd, ptr(receiveBuffer()), RECEIVE_BYTES, 0));
  if (received < 0) {
    const problem = errno();
    if (problem === Errno.EINTR) return [];
    drain(fd);
    throw new SystemError('receive a reply from the kernel', problem);
  }
  const messages = decodeMessages(receiveBuffer(), received, only);
  traceMessages('recv', protocol, messages);
  return messages;
}

/** The caller no longer expects the rest of the answer, and an unfinished dump would block the next one. */
function drain(fd: number): void {
  for (let left = MAX_UNREAD; left > 0; left--) {
    const received = Number(libc().recv(fd, ptr(receiveBuffer()), RECEIVE_BYTES, MSG_DONTWAIT));
    if (received < 0 && errno() === Errno.EAGAIN) return;
  }
}

let shared: Uint8Array | undefined;

/** One buffer for all sockets: calls are synchronous, and what outlives them is copied. */
function receiveBuffer(): Uint8Array {
  shared ??= new Uint8Array(RECEIVE_BYTES);
  return shared;
}
