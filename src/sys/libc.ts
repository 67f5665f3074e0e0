// Which C functions do we call, how are their failures represented, and how is a descriptor closed without a wait?

import { dlopen, FFIType, ptr, read } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { renderErrno } from './errno.ts';
import { LIBC_NAMES } from './libc-names.ts';

const { i32, u64, pointer } = { i32: FFIType.i32, u64: FFIType.u64, pointer: FFIType.ptr };

const SYMBOLS = {
  __errno_location: { args: [], returns: pointer },
  socket: { args: [i32, i32, i32], returns: i32 },
  bind: { args: [i32, pointer, i32], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, i32], returns: i32 },
  send: { args: [i32, pointer, u64, i32], returns: FFIType.i64 },
  recv: { args: [i32, pointer, u64, i32], returns: FFIType.i64 },
  sendto: { args: [i32, pointer, u64, i32, pointer, i32], returns: FFIType.i64 },
  setns: { args: [i32, i32], returns: i32 },
  unshare: { args: [i32], returns: i32 },
  ioctl: { args: [i32, u64, u64], returns: i32 },
  flock: { args: [i32, i32], returns: i32 },
  mount: { args: [pointer, pointer, pointer, u64, pointer], returns: i32 },
  umount2: { args: [pointer, i32], returns: i32 },
} as const;

/** A failed system call. `errno` is the kernel's number, positive. */
export class SystemError extends Error {
  override readonly name = 'SystemError';
  readonly errno: number;

  constructor(action: string, errno: number) {
    super(`Cannot ${action}: ${renderErrno(errno)}`);
    this.errno = errno;
  }
}

/** A memory address as bun:ffi represents it. */
type Address = ReturnType<typeof ptr> | null;

/** The functions of {@link SYMBOLS} with their types, which bun:ffi infers only loosely. */
interface Libc {
  __errno_location(): Address;
  socket(domain: number, type: number, protocol: number): number;
  bind(fd: number, address: Address, length: number): number;
  setsockopt(fd: number, level: number, option: number, value: Address, length: number): number;
  send(fd: number, data: Address, length: number, flags: number): bigint;
  recv(fd: number, data: Address, length: number, flags: number): bigint;
  sendto(fd: number, data: Address, length: number, flags: number, to: Address, toLength: number): bigint;
  setns(fd: number, kind: number): number;
  unshare(flags: number): number;
  ioctl(fd: number, request: bigint, argument: bigint): number;
  flock(fd: number, operation: number): number;
  mount(source: Address, target: Address, type: Address, flags: bigint, data: Address): number;
  umount2(target: Address, flags: number): number;
}

/** How Bun says that there is no such library; it makes code for each function, and refuses with other words. */
const NOT_FOUND = 'Failed to open library';

let loaded: Libc | undefined;

/** The C library, loaded on first use: plugins that do not call the kernel never pay for it. */
export function libc(): Libc {
  loaded ??= loadLibc<Libc>(SYMBOLS);
  return loaded;
}

/**
 * Loads functions of the C library that only some programs need. Every plugin loads {@link libc}, and each symbol costs
 * start-up time.
 */
export function loadLibc<T>(symbols: Parameters<typeof dlopen>[1]): T {
  for (const name of LIBC_NAMES) {
    try {
      return dlopen(name, symbols).symbols as unknown as T;
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
  return at === null ? 0 : read.i32(at, 0);
}

/** A zero-terminated text to be passed as `char *`; keep the array alive during the call. */
export function cString(text: string): Uint8Array {
  if (text.includes('\0'))
    throw new Error(`Cannot pass ${JSON.stringify(text)} to the system: it holds a zero byte`);
  return new TextEncoder().encode(`${text}\0`);
}

export { ptr };

/** bits/socket.h */
const AF_UNIX = 1;
const SOCK_STREAM_CLOEXEC = 1 | 0o2000000;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;

/** struct cmsghdr with two descriptors: size_t cmsg_len, int cmsg_level, int cmsg_type, int[2]. */
const CMSG_BYTES = 24;

interface Functions {
  socketpair(domain: number, type: number, protocol: number, pair: ReturnType<typeof ptr>): number;
  sendmsg(fd: number, message: ReturnType<typeof ptr>, flags: number): bigint;
}

let loadedForClosing: Functions | undefined;

/**
 * Closes a descriptor in the background. After a deletion by any process, the last close of an nf_tables socket waits for a
 * grace period (about 10 ms), and so does process exit. Therefore the descriptor is put into a message that a socket sends to
 * itself. Once both sockets are closed, nothing can receive the message, and the kernel's AF_UNIX garbage collector frees it a
 * moment later without blocking a process. A kernel that frees it at once waits as a plain close would.
 */
export function closeLater(fd: number): void {
  const pair = new Int32Array(2);
  if (functions().socketpair(AF_UNIX, SOCK_STREAM_CLOEXEC, 0, ptr(pair)) === 0) {
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
  const message = new BigUint64Array([
    0n,
    0n,
    BigInt(ptr(vector)),
    1n,
    BigInt(ptr(control)),
    BigInt(CMSG_BYTES),
    0n,
  ]);
  functions().sendmsg(socket, ptr(message), 0);
}

/** Rarely needed, so they are not among the functions that every plugin loads. */
function functions(): Functions {
  const { i32, i64, ptr: pointer } = FFIType;
  loadedForClosing ??= loadLibc<Functions>({
    socketpair: { args: [i32, i32, i32, pointer], returns: i32 },
    sendmsg: { args: [i32, pointer, i32], returns: i64 },
  });
  return loadedForClosing;
}
