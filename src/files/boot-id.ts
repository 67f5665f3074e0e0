// Which boot of the machine is this, by the kernel's own word?
import { closeSync, openSync, readSync } from 'node:fs';

/** Longer than any identity. */
const ROOM_BYTES = 128;

/**
 * Identity of this boot; empty where the kernel does not say. Read into as little room as it needs: the kernel makes, and
 * clears, as much again, which for the usual room takes ten times as long.
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
