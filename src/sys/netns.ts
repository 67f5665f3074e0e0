// How does a thread visit another network namespace and surely come back?
import { closeSync, fstatSync, openSync } from 'node:fs';
import { checked, cString, libc, ptr, SystemError } from './libc.ts';

/** linux/sched.h */
const CLONE_NEWNET = 0x40000000;
/** linux/nsfs.h: _IO(0xb7, 0x3) */
const NS_GET_NSTYPE = 0xb703n;
/** sys/mount.h */
const MS_BIND = 4096n;
const MNT_DETACH = 2;

/** Where a thread's own namespace is found; `/proc/self` would be the main thread's. */
const OWN_NETNS = '/proc/thread-self/ns/net';

/** Device and inode identify a namespace: two paths may lead to the same one. */
export interface NetnsId {
  readonly dev: number;
  readonly ino: number;
}

/** An open network namespace. */
export interface Netns extends NetnsId {
  readonly path: string;
  readonly fd: number;
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

/** The namespace of the calling thread, for whoever needs a descriptor of it. */
export function openOwnNetns(): Netns {
  return openNetns(OWN_NETNS);
}

/** Which namespace the calling thread is in. */
export function ownNetns(): NetnsId {
  return whereabouts();
}

/** Gives the descriptor back. */
export function closeNetns(netns: Netns): void {
  closeSync(netns.fd);
}

/** True when both are the same namespace, whatever their paths. */
export function sameNetns(a: NetnsId, b: NetnsId): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

/**
 * Runs a function inside the namespace. A namespace belongs to a thread, and every await lets other work run on this
 * one: so the function must be synchronous, and its type may not be a promise.
 * Same as: `ip netns exec …` / `nsenter --net=…`
 */
export function inNetns<T>(netns: Netns, visit: () => NotPromise<T>): NotPromise<T> {
  const before = whereabouts();
  move(netns);
  here = netns;
  try {
    return visit();
  } finally {
    comeBack(before);
  }
}

/**
 * Creates a network namespace and keeps it alive by mounting it on an empty file.
 * Same as: `ip netns add`, at a path of one's own
 */
export function createNetnsAt(path: string): void {
  closeSync(openSync(path, 'wx', 0o600));
  const before = whereabouts();
  checked(libc().unshare(CLONE_NEWNET), () => 'create a network namespace');
  try {
    const [from, to, none] = [cString(OWN_NETNS), cString(path), cString('none')];
    checked(
      libc().mount(ptr(from), ptr(to), ptr(none), MS_BIND, null),
      () => `mount network namespace on "${path}"`,
    );
  } finally {
    comeBack(before);
  }
}

/** Takes the mount of {@link createNetnsAt} away; the namespace goes with its last user. The file stays. */
export function unmountNetns(path: string): void {
  const at = cString(path);
  checked(libc().umount2(ptr(at), MNT_DETACH), () => `unmount network namespace "${path}"`);
}

/** Enters the namespace for good: for processes that live in one. */
export function enter(netns: Netns): void {
  move(netns);
  // A descriptor of the one that was left would keep it alive.
  if (home) closeNetns(home);
  home = undefined;
  here = undefined;
}

/** The namespace that the thread lives in, open as long as it does: it is needed for every way back. */
let home: Netns | undefined;

/** The one that it is in at the moment: the other while it visits one. */
let here: Netns | undefined;

function whereabouts(): Netns {
  home ??= openOwnNetns();
  here ??= home;
  return here;
}

function move(netns: Netns): void {
  checked(libc().setns(netns.fd, CLONE_NEWNET), () => `enter network namespace "${netns.path}"`);
}

/** A thread left in the wrong namespace would program the wrong machine: better no process than that one. */
function comeBack(before: Netns): void {
  if (libc().setns(before.fd, CLONE_NEWNET) !== 0) process.abort();
  here = before;
}
