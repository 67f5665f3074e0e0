// Which boot of the machine is this?
import { readBootId } from '../files/boot-id.ts';

/**
 * Identity of this boot: no kernel state outlives it. `CATENA_BOOT_ID` overrides the kernel's, to test what a restart
 * of the machine does. Empty if the kernel does not report one.
 */
export function bootId(env: Readonly<Record<string, string | undefined>> = process.env): string {
  if (env.CATENA_BOOT_ID) return env.CATENA_BOOT_ID;
  current ??= readBootId();
  return current;
}

let current: string | undefined;

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
