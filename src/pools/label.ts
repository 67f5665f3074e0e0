// How does a name become the value of a label?
import { createHash } from 'node:crypto';

/** Values of labels are limited to this many characters. */
const LONGEST = 63;

/** The name itself if it may be a value; otherwise one that only this name has. */
export function labelOf(name: string): string {
  if (name.length <= LONGEST && /^[A-Za-z\d]([A-Za-z\d._-]*[A-Za-z\d])?$/.test(name)) return name;
  return `sha256-${createHash('sha256').update(name).digest('hex').slice(0, 40)}`;
}
