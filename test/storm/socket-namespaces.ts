// In which network namespaces does another process have sockets open?
//
// A socket keeps its namespace alive although no descriptor and no thread shows it. The kernel tells a socket's namespace only
// to a process that has the socket, so it is copied from the other process first (pidfd_getfd(2), SIOCGSKNS).

import { dlopen, FFIType } from 'bun:ffi';
import fs from 'node:fs';

/** asm-generic/unistd.h */
const SYS_PIDFD_OPEN = 434n;
const SYS_PIDFD_GETFD = 438n;
/** linux/sockios.h */
const SIOCGSKNS = 0x894cn;

const { i32, i64, u64 } = FFIType;
const { symbols: libc } = dlopen('libc.so.6', {
  syscall: { args: [i64, u64, u64, u64], returns: i64 },
  ioctl: { args: [i32, u64, u64], returns: i32 },
  close: { args: [i32], returns: i32 },
});

/** `net:[<inode>]` of every socket that the process has open, each once. */
export function socketNamespacesOf(pid: number): string[] {
  const pidfd = Number(libc.syscall(SYS_PIDFD_OPEN, BigInt(pid), 0n, 0n));
  if (pidfd < 0) return [];
  try {
    const sockets = fs.readdirSync(`/proc/${pid}/fd`).filter(fd => isSocket(`/proc/${pid}/fd/${fd}`));
    return [...new Set(sockets.flatMap(fd => namespaceOf(pidfd, Number(fd)) ?? []))];
  } catch {
    return [];
  } finally {
    libc.close(pidfd);
  }
}

function isSocket(path: string): boolean {
  try {
    return fs.readlinkSync(path).startsWith('socket:');
  } catch {
    return false;
  }
}

function namespaceOf(pidfd: number, fd: number): string | undefined {
  const copy = Number(libc.syscall(SYS_PIDFD_GETFD, BigInt(pidfd), BigInt(fd), 0n));
  if (copy < 0) return undefined;
  const netns = libc.ioctl(copy, SIOCGSKNS, 0n);
  libc.close(copy);
  if (netns < 0) return undefined;
  const name = fs.readlinkSync(`/proc/self/fd/${netns}`);
  libc.close(netns);
  return name;
}
