// Which machine is this, whatever its disk was copied from?
import { tryRead } from '../files/read-file.ts';

/**
 * The machine's identities, the one that a copy of the disk does not have first: the firmware's, if root may read it, and the
 * installation's. Node objects have both.
 */
export function thisMachine(): string {
  const files = ['/sys/class/dmi/id/product_uuid', '/etc/machine-id'];
  return files.flatMap(file => tryRead(file)?.trim().toLowerCase() || []).join(' ');
}

/** Whether both are one machine, or one of them is not known. */
export function isSameMachine(one: string | undefined, other: string | undefined): boolean {
  if (!one || !other) return true;
  const [a, b] = [one.split(' '), other.split(' ')];
  return a.length === b.length ? a[0] === b[0] : a.at(-1) === b.at(-1);
}
