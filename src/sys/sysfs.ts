// What does sysfs say about the devices of another network namespace?
//
// A mounted sysfs shows the devices of the namespace in which it was mounted. A mount without a place in the file system is enough
// to read it, and is gone when its descriptor is closed (Linux 5.2).

import { FFIType } from 'bun:ffi';
import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { checked, cString, loadLibc, ptr } from './libc.ts';

/** asm-generic/unistd.h; the numbers of these calls are the same for all processors. */
const SYS_FSOPEN = 430n;
const SYS_FSCONFIG = 431n;
const SYS_FSMOUNT = 432n;
/** linux/mount.h */
const FSOPEN_CLOEXEC = 1n;
const FSCONFIG_CMD_CREATE = 6n;
const FSMOUNT_CLOEXEC = 1n;
const MOUNT_ATTR_RDONLY = 1n;

interface Functions {
  syscall(...args: readonly [bigint, bigint, bigint, bigint, bigint, bigint]): bigint;
}

let loaded: Functions | undefined;

/**
 * Runs a function with the path of a sysfs of the thread's namespace, to be called within `inNetns`.
 * @throws SystemError when this kernel, or this user, cannot mount one
 */
export function withSysfs<T>(visit: (path: string) => T): T {
  const { u64, i64 } = { u64: FFIType.u64, i64: FFIType.i64 };
  loaded ??= loadLibc<Functions>({ syscall: { args: [u64, u64, u64, u64, u64, u64], returns: i64 } });
  const { syscall } = loaded;
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
export interface DeviceNode {
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

/** Undefined if the device has just gone, or what is there is none, such as `bonding_masters`. */
function findDeviceNode(path: string): DeviceNode | undefined {
  let fd: number | undefined;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    const { ino } = fstatSync(fd, { bigint: true });
    return { index: Number(readFileSync(`/proc/self/fd/${fd}/ifindex`, 'utf8')), node: String(ino) };
  } catch {
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}
