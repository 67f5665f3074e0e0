// Was a record written in an earlier boot of the machine?
import { bootId } from '../files/boot-id.ts';

/** Why such an attachment is deleted, human-readable. */
export const EARLIER_BOOT = 'it is from an earlier boot of the machine';

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
