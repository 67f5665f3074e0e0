// What does the lab see of the machine's files, and how is it kept from changing any?
import { closeSync, existsSync, openSync, realpathSync } from 'node:fs';
import { sep } from 'node:path';
import { ensureDirSync } from 'fs-extra/esm';
import { bindMountFd, makeReadOnly, makeWritable, mountTmpfs } from '../sys/mount.ts';

/** Directories that get an empty file system in memory: where links keep leases, locks, caches and sockets. */
export const FRESH_DIRS = ['/run', '/var/lib', '/tmp'] as const;

/** What reads as a file system but is the kernel: sysctls are per namespace, and links write them. */
const KERNEL_DIRS = ['/proc', '/sys'];

/**
 * Turns the machine's files read-only and {@link FRESH_DIRS} empty, for this process and what it starts. The process
 * must be in a mount namespace of its own.
 * @param keep paths below the fresh directories that stay visible: executables, for example
 */
export function layGround(keep: readonly string[]): void {
  const fresh = FRESH_DIRS.filter(existsSync).map(dir => realpathSync(dir));
  const kept = keep.filter(existsSync).map(dir => realpathSync(dir));
  const covered = kept.filter(path => fresh.some(dir => path.startsWith(dir + sep)));
  // Opened before they are covered: a descriptor still leads there afterwards.
  const open = [...new Set(covered)].map(path => [path, openSync(path, 'r')] as const);
  try {
    protectMachine();
    for (const dir of fresh) mountTmpfs(dir, dir === '/tmp' ? 0o1777 : 0o755);
    for (const [path, fd] of open) {
      ensureDirSync(path);
      bindMountFd(fd, path);
    }
  } finally {
    for (const [, fd] of open) closeSync(fd);
  }
}

function protectMachine(): void {
  makeReadOnly('/');
  for (const dir of KERNEL_DIRS.filter(existsSync)) makeWritable(dir);
}
