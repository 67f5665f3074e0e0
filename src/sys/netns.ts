// How does a thread enter another network namespace and reliably return?

import { closeSync, fstatSync, openSync, rmSync } from 'node:fs';
import { isShortage } from './errno.ts';
import { AF, checked, cString, libc, ptr, SOCK, SystemError } from './libc.ts';

/** linux/sched.h */
const CLONE_NEWNET = 0x40000000;
/** linux/nsfs.h: _IO(0xb7, 0x3) */
const NS_GET_NSTYPE = 0xb703n;
/** sys/mount.h */
const MS_BIND = 4096n;
const MNT_DETACH = 2;

/** The thread's own namespace; `/proc/self` would be the main thread's. */
const OWN_NETNS = '/proc/thread-self/ns/net';

/** Device and inode identify a namespace: two paths may refer to the same one. */
interface NetnsId {
  readonly dev: number;
  readonly ino: number;
}

export interface Netns extends NetnsId {
  readonly path: string;
  readonly fd: number;
}

/** A value that is not a promise: a visit must end when the function returns. */
type NotPromise<T> = T extends PromiseLike<unknown> ? never : T;

/**
 * Opens the network namespace that a path refers to.
 * @throws SystemError when the path does not exist, Error when it is not a network namespace
 */
export function openNetns(path: string): Netns {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch (cause) {
    throw new SystemError(`open network namespace "${path}"`, -((cause as { errno?: number }).errno ?? -5));
  }
  if (libc().ioctl(fd, NS_GET_NSTYPE, 0n) !== CLONE_NEWNET) {
    closeSync(fd);
    throw new Error(`Cannot use "${path}" as network namespace: it is a file of another kind`);
  }
  const { dev, ino } = fstatSync(fd);
  return { path, fd, dev, ino };
}

/**
 * Like {@link openNetns}, but undefined when there is no namespace at the path, or none that this process may open.
 * @throws SystemError when descriptors or memory are short
 */
export function findNetns(path: string): Netns | undefined {
  if (path === '') return undefined;
  try {
    return openNetns(path);
  } catch (error) {
    if (isShortage(error)) throw error;
    return undefined;
  }
}

/** Opens the namespace of the calling thread. */
export function openOwnNetns(): Netns {
  return openNetns(OWN_NETNS);
}

/** The namespace that the calling thread is in, which stays open: do not close it. */
export function ownNetns(): Netns {
  home ??= openOwnNetns();
  here ??= home;
  return here;
}

export function closeNetns(netns: Netns): void {
  closeSync(netns.fd);
}

/** True when both are the same namespace, whatever their paths. */
export function sameNetns(a: NetnsId, b: NetnsId): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

/**
 * Runs a function inside the namespace. A namespace belongs to a thread, and every await lets other work run on this
 * thread. The function must therefore be synchronous, and its type must not be a promise.
 * Same as: `ip netns exec …` / `nsenter --net=…`
 */
export function inNetns<T>(netns: Netns, visit: () => NotPromise<T>): NotPromise<T> {
  const before = ownNetns();
  move(netns);
  here = netns;
  try {
    return visit();
  } finally {
    returnTo(before);
  }
}

/**
 * Creates a network namespace and keeps it alive by mounting it on an empty file.
 * Same as: `ip netns add`, at a path of your choice
 */
export function createNetnsAt(path: string): void {
  closeSync(openSync(path, 'wx', 0o600));
  const before = ownNetns();
  try {
    checked(libc().unshare(CLONE_NEWNET), () => 'create a network namespace');
    const [from, to, none] = [cString(OWN_NETNS), cString(path), cString('none')];
    checked(
      libc().mount(ptr(from), ptr(to), ptr(none), MS_BIND, null),
      () => `mount network namespace on "${path}"`,
    );
  } catch (error) {
    // Otherwise the next one at this path would find it taken.
    rmSync(path, { force: true });
    throw error;
  } finally {
    returnTo(before);
  }
}

/** Removes the mount of {@link createNetnsAt}; the namespace ends with its last user. The file remains. */
export function unmountNetns(path: string): void {
  const at = cString(path);
  checked(libc().umount2(ptr(at), MNT_DETACH), () => `unmount network namespace "${path}"`);
}

/** Enters the namespace permanently, for processes that stay in one. */
export function enter(netns: Netns): void {
  move(netns);
  // A descriptor of the previous namespace would keep it alive.
  if (home) closeNetns(home);
  home = undefined;
  here = undefined;
}

/** The namespace that the thread belongs to, always kept open, because every return needs it. */
let home: Netns | undefined;

/** The namespace that the thread is currently in; differs from `home` during a visit. */
let here: Netns | undefined;

function move(netns: Netns): void {
  checked(libc().setns(netns.fd, CLONE_NEWNET), () => `enter network namespace "${netns.path}"`);
}

/** Abort on failure: a thread stuck in the wrong namespace would reconfigure the wrong host. */
function returnTo(before: Netns): void {
  if (libc().setns(before.fd, CLONE_NEWNET) !== 0) process.abort();
  here = before;
}

/** linux/sockios.h */
const SIOCGIFINDEX = 0x8933n;
/** linux/if.h: struct ifreq, a name of 16 bytes and a union of 24. */
const IFREQ_BYTES = 40;

/**
 * Which of the names is taken by an interface of the namespace, including alternative names; undefined when all are free.
 * A netlink socket would also tell, but loads ten times as much code.
 * Same as: `ip link show <name>` for each of them
 */
export function findTakenName(netns: Netns, ifnames: readonly string[]): string | undefined {
  const fd = inNetns(netns, () =>
    checked(libc().socket(AF.INET, SOCK.DGRAM | SOCK.CLOEXEC, 0), () => 'open a socket'),
  );
  try {
    return ifnames.find(ifname => {
      const request = new Uint8Array(IFREQ_BYTES);
      new TextEncoder().encodeInto(ifname, request.subarray(0, IFNAME_BYTES - 1));
      return libc().ioctl(fd, SIOCGIFINDEX, BigInt(ptr(request))) === 0;
    });
  } finally {
    closeSync(fd);
  }
}

/** linux/if.h: IFNAMSIZ */
const IFNAME_BYTES = 16;
