// What is in a directory, if it is one that can be read?
import { readdirSync } from 'node:fs';

/** Names in a directory; none when it is not there, is no directory or may not be read. */
export function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
