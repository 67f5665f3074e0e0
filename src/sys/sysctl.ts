// How are kernel parameters and the facts of sysfs read and written, of another network namespace, too?

import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  writeFileSync,
} from 'node:fs';
import { isShortage, renderErrno } from './errno.ts';
import { faultAt } from './fault.ts';
import { checked, cString, lazyLibc, ptr } from './libc.ts';

/** Longer than nearly all values. The kernel allocates and clears a buffer of the requested size; the usual sizes take ten times as long. */
const ROOM_BYTES = 4096;

let room: Buffer | undefined;

/**
 * Value of a parameter, without its trailing newline. Parameters under `net/` are those of the thread's namespace: for a
 * container, call this within `inNetns`.
 * @param path below /proc/sys, with slashes: `net/ipv4/conf/eth0.100/arp_notify`
 * Same as: `sysctl -n`
 */
export function readSysctl(path: string): string {
  const file = `/proc/sys/${path}`;
  const fd = openSync(file, 'r');
  try {
    room ??= Buffer.alloc(ROOM_BYTES);
    const length = readSync(fd, room);
    const text = length < ROOM_BYTES ? room.toString('utf8', 0, length) : readFileSync(file, 'utf8');
    return text.replace(/\n$/, '');
  } finally {
    closeSync(fd);
  }
}

/** Errors that say nothing about the parameter, only that the machine has run out of a resource. */
const SHORTAGES = ['ENOMEM', 'EMFILE', 'ENFILE', 'EAGAIN'];

/**
 * Like {@link readSysctl}, but undefined when this kernel does not have the parameter, or when it cannot be read: one has no
 * value before it is set (`stable_secret`), another is write-only (`route/flush`).
 * @throws Error when the machine is out of memory or descriptors
 */
export function findSysctl(path: string): string | undefined {
  try {
    return readSysctl(path);
  } catch (cause) {
    const { code = '', message } = cause as NodeJS.ErrnoException;
    if (SHORTAGES.includes(code)) throw new Error(`Cannot read sysctl "${path}": ${message}`, { cause });
    return undefined;
  }
}

/** Sets a parameter. Same as: `sysctl -w` */
export function writeSysctl(path: string, value: string): void {
  const fault = faultAt(() => `set sysctl "${path}"`);
  if (fault !== undefined) {
    throw new Error(`Cannot set sysctl "${path}" to "${value}": ${renderErrno(fault)}`);
  }
  try {
    writeFileSync(`/proc/sys/${path}`, value, { flag: 'r+' });
  } catch (cause) {
    throw new Error(`Cannot set sysctl "${path}" to "${value}": ${(cause as Error).message}`, { cause });
  }
}

/** True when the parameter exists and is writable, which it is not on a read-only /proc, for example. */
export function canWriteSysctl(path: string): boolean {
  try {
    accessSync(`/proc/sys/${path}`, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** @throws Error when the sysctl, and so probably any other, cannot be set */
export function requireWritableSysctl(path: string): void {
  if (canWriteSysctl(path)) return;
  throw new Error(`Cannot set sysctls on this node: "/proc/sys/${path}" cannot be written`);
}

/** Sets a parameter unless it already has the value. A read-only /proc is then only a problem when the value must change. */
export function ensureSysctl(path: string, value: string): void {
  if (findSysctl(path) !== value) writeSysctl(path, value);
}

/** Sets a parameter if the kernel has it; for hardening that some kernels do not support. */
export function trySysctl(path: string, value: string): void {
  try {
    writeSysctl(path, value);
  } catch {
    // Best effort by definition.
  }
}

// What does sysfs say about the devices of another network namespace?
//
// A mounted sysfs shows the devices of the namespace in which it was mounted. A mount without a place in the file system is enough
// to read it, and is gone when its descriptor is closed (Linux 5.2).

/** asm-generic/unistd.h; the numbers of these calls are the same for all processors. */
const SYS_FSOPEN = 430n;
const SYS_FSCONFIG = 431n;
const SYS_FSMOUNT = 432n;
/** linux/mount.h */
const FSOPEN_CLOEXEC = 1n;
const FSCONFIG_CMD_CREATE = 6n;
const FSMOUNT_CLOEXEC = 1n;
const MOUNT_ATTR_RDONLY = 1n;

const functions = lazyLibc({
  syscall: { args: ['u64', 'u64', 'u64', 'u64', 'u64', 'u64'], returns: 'i64' },
});

/**
 * Runs a function with the path of a sysfs of the thread's namespace, to be called within `inNetns`.
 * @throws SystemError when this kernel, or this user, cannot mount one
 */
function withSysfs<T>(visit: (path: string) => T): T {
  const { syscall } = functions();
  const type = cString('sysfs');
  const failed = (): string => 'mount sysfs';
  const context = checked(syscall(SYS_FSOPEN, BigInt(ptr(type)), FSOPEN_CLOEXEC, 0n, 0n, 0n), failed);
  try {
    checked(syscall(SYS_FSCONFIG, BigInt(context), FSCONFIG_CMD_CREATE, 0n, 0n, 0n), failed);
    const mount = checked(
      syscall(SYS_FSMOUNT, BigInt(context), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY, 0n, 0n),
      failed,
    );
    try {
      return visit(`/proc/self/fd/${mount}`);
    } finally {
      closeSync(mount);
    }
  } finally {
    closeSync(context);
  }
}

/**
 * Number of the character device through which packets of a macvtap are read and written, as `240:1`. To be called within
 * `inNetns`.
 * @throws Error when there is none
 */
export function readTapNode(ifname: string): string {
  return withSysfs(sys => {
    const dir = `${sys}/class/net/${ifname}/macvtap`;
    const [name] = readdirSync(dir);
    return readFileSync(`${dir}/${name}/dev`, 'utf8').trim();
  });
}

/** A device of a namespace, and the number of its directory in sysfs. */
interface DeviceNode {
  readonly index: number;
  /** Decimal. It goes with the device into every namespace, and no other device of this boot ever has it. */
  readonly node: string;
}

/**
 * The devices of the thread's namespace with the numbers of their directories. No program can choose such a number, as a container can
 * choose name, alias, hardware address, index and kind of a device that it makes.
 * Same as: `stat --dereference --format %i /sys/class/net/*`
 * @throws SystemError when this kernel, or this user, cannot mount sysfs
 */
export function listDeviceNodes(): DeviceNode[] {
  return withSysfs(sys => {
    const dir = `${sys}/class/net`;
    return readdirSync(dir).flatMap(name => findDeviceNode(`${dir}/${name}`) ?? []);
  });
}

/** Undefined if the device has just gone, or what is there is none, such as `bonding_masters`. @throws Error for want of descriptors or memory */
function findDeviceNode(path: string): DeviceNode | undefined {
  let fd: number | undefined;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    const { ino } = fstatSync(fd, { bigint: true });
    return { index: Number(readFileSync(`/proc/self/fd/${fd}/ifindex`, 'utf8')), node: String(ino) };
  } catch (error) {
    if (isShortage(error)) throw error;
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

export function kernelFamilies(): readonly (4 | 6)[] {
  return existsSync('/proc/sys/net/ipv6') ? [4, 6] : [4];
}
