// Which cookie has the kernel given to a network namespace?
//
// When a namespace is destroyed, the kernel reuses its device and inode numbers at once, usually for the very next one. A
// cookie is used only once per boot. It can only be read from a socket in the namespace, so the thread enters the namespace
// for a moment. The journal needs this, but also runs under Node, which cannot do it. Therefore bun:ffi is loaded on first
// use.
import type * as FfiModule from 'bun:ffi';
import { closeSync, constants, openSync, statSync } from 'node:fs';
import { LIBC_NAMES } from './libc-names.ts';

/** linux/sched.h */
const CLONE_NEWNET = 0x40000000;
/** bits/socket.h, asm-generic/socket.h */
const AF_UNIX = 1;
const SOCK_STREAM_CLOEXEC = 1 | 0o2000000;
const SOL_SOCKET = 1;
const SO_NETNS_COOKIE = 71;

/** `/proc/self` would be the namespace of the main thread. */
const OWN_NETNS = '/proc/thread-self/ns/net';

/**
 * The cookie of the namespace at a path, as a decimal number. Undefined when it cannot be read: no namespace at the path, no
 * permission to enter it, a kernel before Linux 5.14, or a JavaScript engine other than Bun.
 */
export function findNetnsCookie(path: string): string | undefined {
  const functions = findFunctions();
  if (functions === undefined) return undefined;
  const open: number[] = [];
  try {
    const [own, other] = [statSync(OWN_NETNS), statSync(path)];
    // All namespaces are on one device. Do not open anything else, which might have side effects.
    if (own.dev !== other.dev) return undefined;
    if (own.ino === other.ino) return askHere(functions);
    const home = openSync(OWN_NETNS, 'r');
    open.push(home);
    const netns = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    open.push(netns);
    if (functions.setns(netns, CLONE_NEWNET) !== 0) return undefined;
    try {
      return askHere(functions);
    } finally {
      // Abort: a thread stuck in the wrong namespace would reconfigure the wrong host.
      if (functions.setns(home, CLONE_NEWNET) !== 0) process.abort();
    }
  } catch {
    return undefined;
  } finally {
    for (const fd of open) closeSync(fd);
  }
}

function askHere({ socket, getsockopt, ptr }: Functions): string | undefined {
  const fd = socket(AF_UNIX, SOCK_STREAM_CLOEXEC, 0);
  if (fd < 0) return undefined;
  try {
    const cookie = new BigUint64Array(1);
    const length = new Uint32Array([cookie.byteLength]);
    const outcome = getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, ptr(cookie), ptr(length));
    return outcome === 0 ? String(cookie[0]) : undefined;
  } finally {
    closeSync(fd);
  }
}

type Address = unknown;

interface Functions {
  setns(fd: number, kind: number): number;
  socket(domain: number, type: number, protocol: number): number;
  getsockopt(fd: number, level: number, option: number, value: Address, length: Address): number;
  ptr(view: ArrayBufferView): Address;
}

let loaded: Functions | undefined | 'none';

function findFunctions(): Functions | undefined {
  loaded ??= load() ?? 'none';
  return loaded === 'none' ? undefined : loaded;
}

function load(): Functions | undefined {
  if (typeof Bun === 'undefined') return undefined;
  const { dlopen, ptr } = import.meta.require('bun:ffi') as typeof FfiModule;
  for (const name of LIBC_NAMES) {
    try {
      const { symbols } = dlopen(name, {
        setns: { args: ['i32', 'i32'], returns: 'i32' },
        socket: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
        getsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'ptr'], returns: 'i32' },
      });
      return { ...symbols, ptr } as unknown as Functions;
    } catch {
      // This system may use the next name.
    }
  }
  return undefined;
}
