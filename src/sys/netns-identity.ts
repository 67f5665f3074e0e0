// Does a path still refer to the same network namespace?
//
// When a namespace is destroyed, the kernel reuses its device and inode numbers at once, usually for the very next one. A
// cookie is used only once per boot. It can only be read from a socket in the namespace, so the thread enters the namespace
// for a moment. The journal needs this, but also runs under Node, which cannot do it. Therefore bun:ffi is loaded on first
// use.

import { closeSync, constants, openSync, statSync } from 'node:fs';
import { findInLibc } from './libc-names.ts';

/** What a record keeps of a namespace, to recognise it. */
export interface NetnsIdentity {
  /** Device and inode; undefined when the path did not exist. */
  readonly netnsIdentity: string | undefined;
  /** The kernel's cookie of the namespace, which no later one gets in the same boot. Absent if the kernel did not report it. */
  readonly netnsCookie?: string;
}

/** The identity that distinguishes the namespace at a path from every other one of this boot. */
export function identifyNetns(path: string): NetnsIdentity {
  const netnsIdentity = findNetnsIdentity(path);
  const netnsCookie = netnsIdentity === undefined ? undefined : findNetnsCookie(path);
  return { netnsIdentity, ...(netnsCookie === undefined ? {} : { netnsCookie }) };
}

/**
 * Device and inode of the namespace at a path; undefined if there is none. The kernel reuses the inode number
 * of a deleted namespace, so different identities are certain, and equal ones only likely.
 */
export function findNetnsIdentity(path: string): string | undefined {
  if (path === '') return undefined;
  try {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev}:${ino}`;
  } catch {
    return undefined;
  }
}

/**
 * `same`: the path refers to the same namespace, or the earlier one is not known. `gone`: it does not exist. `other`: it
 * refers to a different one.
 * @param then what was known of the namespace; the caller has to ensure that it is of this boot
 */
export function compareNetns(path: string, then: NetnsIdentity): 'same' | 'gone' | 'other' {
  const { netnsIdentity, netnsCookie } = then;
  if (netnsIdentity === undefined) return 'same';
  const now = findNetnsIdentity(path);
  if (now === undefined) return 'gone';
  if (now !== netnsIdentity) return 'other';
  const cookie = netnsCookie === undefined ? undefined : findNetnsCookie(path);
  // If the kernel does not report the cookie now, device and inode have to be enough.
  return cookie === undefined || cookie === netnsCookie ? 'same' : 'other';
}

/** The cookie of the namespace that this process works in, as a record has it. A process stays in one. */
export function hostCookie(): { readonly hostCookie?: string } {
  ownCookie ??= findNetnsCookie(OWN_NETNS);
  return ownCookie === undefined ? {} : { hostCookie: ownCookie };
}

let ownCookie: string | undefined;

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
  loaded ??= load() ?? 'none';
  if (loaded === 'none') return undefined;
  const functions = loaded;
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

type Functions = NonNullable<ReturnType<typeof load>>;

let loaded: Functions | undefined | 'none';

function load() {
  return findInLibc({
    setns: { args: ['i32', 'i32'], returns: 'i32' },
    socket: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
    getsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'ptr'], returns: 'i32' },
  });
}
