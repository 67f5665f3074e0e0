// Which boot of the machine is this?
import { closeSync, openSync, readSync } from 'node:fs';

/** Longer than any identity. */
const ROOM_BYTES = 128;

let current: string | undefined;

/**
 * Identity of this boot: no kernel state outlives it. `CATENA_BOOT_ID` overrides the kernel's, to test what a restart of the
 * machine does. Empty if the kernel does not report one.
 */
export function bootId(env: Readonly<Record<string, string | undefined>> = process.env): string {
  if (env.CATENA_BOOT_ID) return env.CATENA_BOOT_ID;
  current ??= readBootId();
  return current;
}

/**
 * Reads into a small buffer: the kernel allocates, and
 * clears, one of the same size, which for the usual size takes ten times as long.
 */
function readBootId(): string {
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

/**
 * Whether the kernel cannot have anything of the attachment any longer. If one of the two boots is unknown, it may have:
 * taking the attachment down could cut a working container off its network.
 */
export function isOfEarlierBoot(
  { boot }: { readonly boot: string },
  env: Readonly<Record<string, string | undefined>> | undefined,
): boolean {
  const now = bootId(env);
  return now !== '' && boot !== '' && boot !== now;
}
