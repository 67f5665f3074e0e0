// How does a thread visit another network namespace and surely come back?
import { closeSync, fstatSync, openSync } from 'node:fs';
import { checked, cString, libc, ptr, SystemError } from './libc.ts';

/** linux/sched.h */
export const CLONE_NEWNET = 0x40000000;
/** linux/nsfs.h: _IO(0xb7, 0x3) */
const NS_GET_NSTYPE = 0xb703n;
/** sys/mount.h */
const MS_BIND = 4096n;
const MNT_DETACH = 2;

/** Where a thread's own namespace is found; `/proc/self` would be the main thread's. */
const OWN_NETNS = '/proc/thread-self/ns/net';

/** An open network namespace. Device and inode identify it: two paths may lead to the same one. */
export interface Netns {
  readonly path: string;
  readonly fd: number;
  readonly dev: number;
  readonly ino: number;
}

/** A value that is not a promise: a visit must be over when the function returns. */
type NotPromise<T> = T extends PromiseLike<unknown> ? never : T;

/**
 * Opens the network namespace that a path refers to.
 * @throws SystemError when nothing is there, Error when it is something else
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

/** Like {@link openNetns}, but undefined when there is no namespace at the path (any more). */
export function findNetns(path: string): Netns | undefined {
  if (path === '') return undefined;
  try {
    return openNetns(path);
  } catch {
    return undefined;
  }
}

/** The namespace of the calling thread. */
export function openOwnNetns(): Netns {
  return openNetns(OWN_NETNS);
}

/** Gives the descriptor back. */
export function closeNetns(netns: Netns): void {
  closeSync(netns.fd);
}

/** True when both are the same namespace, whatever their paths. */
export function sameNetns(a: Netns, b: Netns): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

/**
 * Runs a function inside the namespace. A namespace belongs to a thread, and every await lets other work run on this
 * one: so the function must be synchronous, and its type may not be a promise.
 * Same as: `ip netns exec …` / `nsenter --net=…`
 */
export function inNetns<T>(netns: Netns, visit: () => NotPromise<T>): NotPromise<T> {
  const own = openOwnNetns();
  try {
    enter(netns);
    try {
      return visit();
    } finally {
      comeBack(own);
    }
  } finally {
    closeNetns(own);
  }
}

/**
 * Creates a network namespace and keeps it alive by mounting it on an empty file.
 * Same as: `ip netns add`, at a path of one's own
 */
export function createNetnsAt(path: string): void {
  closeSync(openSync(path, 'wx', 0o600));
  const own = openOwnNetns();
  try {
    checked(libc().unshare(CLONE_NEWNET), () => 'create a network namespace');
    try {
      const [from, to, none] = [cString(OWN_NETNS), cString(path), cString('none')];
      checked(
        libc().mount(ptr(from), ptr(to), ptr(none), MS_BIND, null),
        () => `mount network namespace on "${path}"`,
      );
    } finally {
      comeBack(own);
    }
  } finally {
    closeNetns(own);
  }
}

/** Takes the mount of {@link createNetnsAt} away; the namespace goes with its last user. The file stays. */
export function unmountNetns(path: string): void {
  const at = cString(path);
  checked(libc().umount2(ptr(at), MNT_DETACH), () => `unmount network namespace "${path}"`);
}

/** Enters the namespace for good: for processes that live in one. */
export function enter(netns: Netns): void {
  checked(libc().setns(netns.fd, CLONE_NEWNET), () => `enter network namespace "${netns.path}"`);
}

/** A thread left in the wrong namespace would program the wrong machine: better no process than that one. */
function comeBack(own: Netns): void {
  if (libc().setns(own.fd, CLONE_NEWNET) === 0) return;
  process.abort();
}
