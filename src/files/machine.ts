// Which machine is this?
import { tryRead } from './read-file.ts';

/**
 * The machine's identities, the one that a copy of the disk does not have first: the firmware's, if root may read it, and the
 * installation's. Node objects have both.
 */
export function thisMachine(): string {
  const files = ['/sys/class/dmi/id/product_uuid', '/etc/machine-id'];
  return files.flatMap(file => tryRead(file)?.trim().toLowerCase() || []).join(' ');
}
