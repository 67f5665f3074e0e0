// How does what the kernel answers get from a socket into messages?
import { Errno } from '../sys/errno.ts';
import { errno, libc, ptr, SystemError } from '../sys/libc.ts';
import { decodeMessages, type Envelope } from './codec/message.ts';
import { traceMessages } from './trace.ts';

/** sys/socket.h */
const MSG_DONTWAIT = 0x40;

/** The kernel fills a dump message by message up to this size at most. */
const RECEIVE_BYTES = 1 << 18;

/** More messages than any dump comes in. */
const MAX_UNREAD = 100_000;

/**
 * What comes next, waiting for it; nothing when a signal came instead.
 * @throws SystemError when nothing came in time, or more than the socket could hold; nothing is left unread then
 */
export function receiveMessages(fd: number, protocol: number): Envelope[] {
  const received = Number(libc().recv(fd, ptr(receiveBuffer()), RECEIVE_BYTES, 0));
  if (received < 0) {
    const problem = errno();
    if (problem === Errno.EINTR) return [];
    drain(fd);
    throw new SystemError('receive an answer from the kernel', problem);
  }
  const messages = decodeMessages(receiveBuffer(), received);
  traceMessages('recv', protocol, messages);
  return messages;
}

/** Nobody waits for the rest of an answer any more; a dump that nobody reads to its end keeps the kernel from another. */
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
