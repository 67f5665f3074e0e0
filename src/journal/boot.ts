// In which boot of the machine are we?
import { readBootId } from '../files/boot-id.ts';

/**
 * Identity of this boot: nothing that the kernel held outlives it. `CATENA_BOOT_ID` stands in for the kernel's, to try
 * what a restart of the machine does. Empty where the kernel does not say.
 */
export function bootId(env: Readonly<Record<string, string | undefined>> = process.env): string {
  if (env.CATENA_BOOT_ID) return env.CATENA_BOOT_ID;
  current ??= readBootId();
  return current;
}

let current: string | undefined;
