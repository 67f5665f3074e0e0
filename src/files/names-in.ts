// What is in a directory, if it can be read?
import { readdirSync } from 'node:fs';

/** Names in a directory; none if it is missing, not a directory or unreadable. */
export function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
