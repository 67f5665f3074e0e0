// How are kernel parameters read and written?
import { accessSync, closeSync, constants, openSync, readFileSync, readSync, writeFileSync } from 'node:fs';
import { renderErrno } from './errno.ts';
import { faultAt } from './fault.ts';

/**
 * Value of a parameter, without its trailing newline. Parameters under `net/` are those of the thread's namespace: for a
 * container, call this within `inNetns`.
 * @param path below /proc/sys, with slashes: `net/ipv4/conf/eth0.100/arp_notify`
 * Same as: `sysctl -n`
 */
export function readSysctl(path: string): string {
  return readShort(`/proc/sys/${path}`).replace(/\n$/, '');
}

/** Longer than nearly all values. */
const ROOM_BYTES = 4096;

let room: Buffer | undefined;

/** The kernel allocates and clears a buffer of the requested size; the usual sizes take ten times as long. */
function readShort(path: string): string {
  const fd = openSync(path, 'r');
  try {
    room ??= Buffer.alloc(ROOM_BYTES);
    const length = readSync(fd, room);
    return length < ROOM_BYTES ? room.toString('utf8', 0, length) : readFileSync(path, 'utf8');
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
    const reason = (cause as { code?: string }).code ?? String(cause);
    throw new Error(`Cannot set sysctl "${path}" to "${value}": ${reason}`, { cause });
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
