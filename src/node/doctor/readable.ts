// Is something hidden from this user, so that it must not be taken for absent?
import { accessSync, constants } from 'node:fs';

/** Whether the path may not be read, or not even looked for, by this user. A missing one is readable: there is nothing in it. */
export function isHidden(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return false;
  } catch (error) {
    return isDenied((error as Error).message);
  }
}

/** Whether an error, by its message, comes from missing rights. */
export function isDenied(message: string): boolean {
  return /\b(EACCES|EPERM)\b/.test(message);
}
