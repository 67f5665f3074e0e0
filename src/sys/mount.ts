// How does a process change its own view of the file system without affecting other processes?
import { checked, cString, lazyLibc, libc, ptr } from './libc.ts';

/** sys/mount.h */
const MS_NOSUID = 2n;
const MS_NODEV = 4n;
const MS_BIND = 4096n;
const MS_REC = 16384n;

/** linux/mount.h, linux/fcntl.h; the number is the same on every architecture. */
const SYS_MOUNT_SETATTR = 442n;
const MOUNT_ATTR_RDONLY = 1n;
const AT_FDCWD = -100n;
const AT_RECURSIVE = 0x8000n;

/**
 * Mounts an empty in-memory file system on a directory, hiding its contents in this mount namespace.
 * Same as: `mount -t tmpfs none <path>`
 */
export function mountTmpfs(path: string, mode = 0o755): void {
  const [source, target, type] = [cString('none'), cString(path), cString('tmpfs')];
  const data = cString(`mode=${mode.toString(8)}`);
  checked(
    libc().mount(ptr(source), ptr(target), ptr(type), MS_NOSUID | MS_NODEV, ptr(data)),
    () => `mount a tmpfs on "${path}"`,
  );
}

/** Mounts an open directory at a second path, even when its own path is covered. Same as: `mount --rbind` */
export function bindMountFd(fd: number, target: string): void {
  const [from, to, none] = [cString(`/proc/self/fd/${fd}`), cString(target), cString('none')];
  checked(
    libc().mount(ptr(from), ptr(to), ptr(none), MS_BIND | MS_REC, null),
    () => `mount a directory on "${target}"`,
  );
}

/**
 * Makes a mount and all mounts below it read-only in this mount namespace, for root as well.
 * Same as: `mount -o bind,ro` for each of them
 * @throws SystemError with ENOSYS before Linux 5.12
 */
export function makeReadOnly(path: string): void {
  setMountAttributes(path, AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0n);
}

/** Makes one mount writable again, if this namespace made it read-only. */
export function makeWritable(path: string): void {
  setMountAttributes(path, 0n, 0n, MOUNT_ATTR_RDONLY);
}

/** linux/mount.h: struct mount_attr { __u64 attr_set; __u64 attr_clr; __u64 propagation; __u64 userns_fd; } */
function setMountAttributes(path: string, flags: bigint, set: bigint, clear: bigint): void {
  const attributes = new BigUint64Array([set, clear, 0n, 0n]);
  const at = cString(path);
  const result = syscalls().syscall(
    SYS_MOUNT_SETATTR,
    AT_FDCWD,
    ptr(at),
    flags,
    ptr(attributes),
    BigInt(attributes.byteLength),
  );
  checked(result, () => `make "${path}" ${set ? 'read-only' : 'writable'}`);
}

const syscalls = lazyLibc({ syscall: { args: ['i64', 'i64', 'ptr', 'i64', 'ptr', 'i64'], returns: 'i64' } });
