// Is the namespace of an attachment gone?
import { statSync } from 'node:fs';

/** Whether its path no longer exists. An attachment that names no namespace cannot be judged. */
export function isGone({ netns }: { readonly netns: string }): boolean {
  return netns !== '' && statSync(netns, { throwIfNoEntry: false }) === undefined;
}
