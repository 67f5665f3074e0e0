// Which C functions do we call, how are their failures represented, and how is a descriptor closed without a wait?

import { dlopen, type Pointer, ptr, read } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { renderErrno } from './errno.ts';
import { LIBC_NAMES } from './libc-names.ts';

/** A failed system call. `errno` is the kernel's number, positive. */
export class SystemError extends Error {
  override readonly name = 'SystemError';
  readonly errno: number;

  constructor(action: string, errno: number) {
    super(`Cannot ${action}: ${renderErrno(errno)}`);
    this.errno = errno;
  }
}

/** How Bun says that there is no such library; it makes code for each function, and refuses with other words. */
const NOT_FOUND = 'Failed to open library';

type Symbols = Parameters<typeof dlopen>[1];
type FunctionsOf<S extends Symbols> = ReturnType<typeof dlopen<S>>['symbols'];

/**
 * Functions of the C library by their types, loaded when they are first asked for: each costs start-up time, so those that only some
 * programs need are not among {@link libc}'s.
 */
export function lazyLibc<const S extends Symbols>(symbols: S): () => FunctionsOf<S> {
  let loaded: FunctionsOf<S> | undefined;
  return () => {
    loaded ??= loadLibc(symbols);
    return loaded;
  };
}

/** The functions that every plugin loads which calls the kernel. */
export const libc = lazyLibc({
  __errno_location: { args: [], returns: 'ptr' },
  socket: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
  bind: { args: ['i32', 'ptr', 'i32'], returns: 'i32' },
  setsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'i32'], returns: 'i32' },
  send: { args: ['i32', 'ptr', 'u64', 'i32'], returns: 'i64' },
  recv: { args: ['i32', 'ptr', 'u64', 'i32'], returns: 'i64' },
  sendto: { args: ['i32', 'ptr', 'u64', 'i32', 'ptr', 'i32'], returns: 'i64' },
  setns: { args: ['i32', 'i32'], returns: 'i32' },
  unshare: { args: ['i32'], returns: 'i32' },
  ioctl: { args: ['i32', 'u64', 'u64'], returns: 'i32' },
  flock: { args: ['i32', 'i32'], returns: 'i32' },
  mount: { args: ['ptr', 'ptr', 'ptr', 'u64', 'ptr'], returns: 'i32' },
  umount2: { args: ['ptr', 'i32'], returns: 'i32' },
});

function loadLibc<S extends Symbols>(symbols: S): FunctionsOf<S> {
  for (const name of LIBC_NAMES) {
    try {
      return dlopen(name, symbols).symbols;
    } catch (cause) {
      // This system may use the next name.
      if ((cause as Error).message.startsWith(NOT_FOUND)) continue;
      throw new Error(
        'Cannot call the C library: the library is there; executable memory is refused. Remove MemoryDenyWriteExecute= from the ' +
          'service of the runtime, or raise its limit of address space',
        { cause },
      );
    }
  }
  throw new Error(`Cannot load the C library: none of ${LIBC_NAMES.join(', ')} was found`);
}

/**
 * The result of a C function that reports failure as -1.
 * @param action the operation, for the message ("enter network namespace \"/run/netns/a\"")
 * @throws SystemError
 */
export function checked(result: number | bigint, action: () => string): number {
  const value = Number(result);
  if (value >= 0) return value;
  throw new SystemError(action(), errno());
}

/** `errno` of the calling thread; read it right after the failed call. */
export function errno(): number {
  const at = libc().__errno_location();
  return at === null ? 0 : read.i32(at as Pointer, 0);
}

/** A zero-terminated text to be passed as `char *`; keep the array alive during the call. */
export function cString(text: string): Uint8Array {
  if (text.includes('\0'))
    throw new Error(`Cannot pass ${JSON.stringify(text)} to the system: it holds a zero byte`);
  return new TextEncoder().encode(`${text}\0`);
}

export { ptr };

/** bits/socket.h */
export const AF = { UNIX: 1, INET: 2, INET6: 10, NETLINK: 16, PACKET: 17 } as const;
export const SOCK = { STREAM: 1, DGRAM: 2, RAW: 3, NONBLOCK: 0o4000, CLOEXEC: 0o2000000 } as const;
export const MSG = { DONTWAIT: 0x40, NOSIGNAL: 0x4000 } as const;
/** asm-generic/socket.h */
export const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;

/** struct cmsghdr with two descriptors: size_t cmsg_len, int cmsg_level, int cmsg_type, int[2]. */
const CMSG_BYTES = 24;

const functions = lazyLibc({
  socketpair: { args: ['i32', 'i32', 'i32', 'ptr'], returns: 'i32' },
  sendmsg: { args: ['i32', 'ptr', 'i32'], returns: 'i64' },
});

/**
 * Closes a descriptor in the background. After a deletion by any process, the last close of an nf_tables socket waits for a
 * grace period (about 10 ms), and so does process exit. Therefore the descriptor is put into a message that a socket sends to
 * itself. Once both sockets are closed, nothing can receive the message, and the kernel's AF_UNIX garbage collector frees it a
 * moment later without blocking a process. A kernel that frees it at once waits as a plain close would.
 */
export function closeLater(fd: number): void {
  const pair = new Int32Array(2);
  if (functions().socketpair(AF.UNIX, SOCK.STREAM | SOCK.CLOEXEC, 0, ptr(pair)) === 0) {
    const [sender = -1, receiver = -1] = pair;
    // If the kernel refuses, the only cost is time.
    send(sender, [fd, receiver]);
    closeSync(receiver);
    closeSync(sender);
  }
  closeSync(fd);
}

function send(socket: number, fds: readonly [number, number]): void {
  const control = new Uint8Array(CMSG_BYTES);
  const view = new DataView(control.buffer);
  view.setBigUint64(0, BigInt(CMSG_BYTES), true);
  view.setInt32(8, SOL_SOCKET, true);
  view.setInt32(12, SCM_RIGHTS, true);
  for (const [i, one] of fds.entries()) view.setInt32(16 + 4 * i, one, true);
  const byte = new Uint8Array(1);
  const vector = new BigUint64Array([BigInt(ptr(byte)), 1n]);
  // struct msghdr: name, its length, vectors, their number, control, its length, flags.
  const fields = [0, 0, ptr(vector), 1, ptr(control), CMSG_BYTES, 0];
  const message = BigUint64Array.from(fields, BigInt);
  functions().sendmsg(socket, ptr(message), 0);
}
