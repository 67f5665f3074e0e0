// Which C functions do we call, and how do their failures look?
import { dlopen, FFIType, ptr, read } from 'bun:ffi';
import { renderErrno } from './errno.ts';

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

/** A system call said no. `errno` is the kernel's number, positive. */
export class SystemError extends Error {
  override readonly name = 'SystemError';
  readonly errno: number;

  constructor(action: string, errno: number) {
    super(`Cannot ${action}: ${renderErrno(errno)}`);
    this.errno = errno;
  }
}

/** An address in memory, as bun:ffi counts them. */
type Address = ReturnType<typeof ptr> | null;

/** The functions of {@link SYMBOLS} with their types; bun:ffi derives the latter only loosely. */
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

let loaded: Libc | undefined;

/** The C library, loaded when first needed: links that stay away from the kernel never pay for it. */
export function libc(): Libc {
  loaded ??= loadLibc<Libc>(SYMBOLS);
  return loaded;
}

/**
 * Functions of the C library that only some programs need: what every link loads is {@link libc}, and each symbol costs
 * start-up time.
 */
export function loadLibc<T>(symbols: Parameters<typeof dlopen>[1]): T {
  const names = ['libc.so.6', 'libc.so', `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`];
  for (const name of names) {
    try {
      return dlopen(name, symbols).symbols as unknown as T;
    } catch {
      // The next name may be the one this system uses.
    }
  }
  throw new Error(`Cannot load the C library: none of ${names.join(', ')} was found`);
}

/**
 * The result of a C function that reports failure as -1.
 * @param action what was being done, for the message ("enter network namespace \"/run/netns/a\"")
 * @throws SystemError
 */
export function checked(result: number | bigint, action: () => string): number {
  const value = Number(result);
  if (value >= 0) return value;
  throw new SystemError(action(), errno());
}

/** `errno` of the calling thread; ask right after the call that failed. */
export function errno(): number {
  const at = libc().__errno_location();
  return at === null ? 0 : read.i32(at, 0);
}

/** Zero-terminated bytes of a text, to be passed as `char *`; keep the array alive across the call. */
export function cString(text: string): Uint8Array {
  if (text.includes('\0'))
    throw new Error(`Cannot pass ${JSON.stringify(text)} to the system: it holds a zero byte`);
  return new TextEncoder().encode(`${text}\0`);
}

export { ptr };
