// Which boot of the machine is this, according to the kernel?
import { closeSync, openSync, readSync } from 'node:fs';

/** Longer than any identity. */
const ROOM_BYTES = 128;

/**
 * Identity of this boot; empty if the kernel does not report one. Read into a small buffer: the kernel allocates, and
 * clears, one of the same size, which for the usual size takes ten times as long.
 */
export function readBootId(): string {
  try {
    const fd = openSync('/proc/sys/kernel/random/boot_id', 'r');
    try {
      const room = Buffer.alloc(ROOM_BYTES);
      return room.toString('latin1', 0, readSync(fd, room)).trim();
    } finally {
      closeSync(fd);
    }
  } catch {
    return '';
  }
}
