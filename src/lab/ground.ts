// Which of the machine's files does the lab see, and how is it prevented from changing them?
import { closeSync, existsSync, openSync, realpathSync } from 'node:fs';
import { sep } from 'node:path';
import { ensureDirSync } from 'fs-extra/esm';
import { workingDirectory } from '../cni/directories.ts';
import { bindMountFd, makeReadOnly, makeWritable, mountTmpfs } from '../sys/mount.ts';

/** Directories replaced by empty in-memory file systems: plugins keep leases, locks, caches and sockets there. */
export const FRESH_DIRS = ['/run', '/var/lib', '/tmp'] as const;

/** File systems that are really the kernel: sysctls are per namespace, and plugins write them. */
const KERNEL_DIRS = ['/proc', '/sys'];

/**
 * Makes the machine's files read-only and {@link FRESH_DIRS} empty, for this process and its children. The process must be in
 * a mount namespace of its own.
 * @param keep paths below the fresh directories that remain visible: executables, for example
 */
export function layGround(keep: readonly string[]): void {
  const fresh = FRESH_DIRS.filter(existsSync).map(dir => realpathSync(dir));
  const kept = keep.filter(existsSync).map(dir => realpathSync(dir));
  const covered = kept.filter(path => fresh.some(dir => path.startsWith(dir + sep)));
  // Opened before they are covered, since a descriptor still refers to the original directory.
  const open = [...new Set(covered)].map(path => [path, openSync(path, 'r')] as const);
  const cwd = workingDirectory() ?? '/';
  try {
    protectMachine();
    for (const dir of fresh) mountTmpfs(dir, dir === '/tmp' ? 0o1777 : 0o755);
    for (const [path, fd] of open) {
      ensureDirSync(path);
      bindMountFd(fd, path);
    }
    enter(cwd);
  } finally {
    for (const [, fd] of open) closeSync(fd);
  }
}

/** Enters the directory as the lab shows it: the process is still in the covered one, which no longer has a path. */
function enter(dir: string): void {
  try {
    process.chdir(dir);
  } catch {
    process.chdir('/');
  }
}

function protectMachine(): void {
  makeReadOnly('/');
  for (const dir of KERNEL_DIRS.filter(existsSync)) makeWritable(dir);
}
