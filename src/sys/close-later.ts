// How is a descriptor closed without waiting for the kernel's cleanup?
import { FFIType } from 'bun:ffi';
import { closeSync } from 'node:fs';
import { loadLibc, ptr } from './libc.ts';

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

let loaded: Functions | undefined;

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
  loaded ??= loadLibc<Functions>({
    socketpair: { args: [i32, i32, i32, pointer], returns: i32 },
    sendmsg: { args: [i32, pointer, i32], returns: i64 },
  });
  return loaded;
}
