// How does a project get onto the disk, without touching what is there?
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';

/**
 * Writes files into a directory, which is made when missing.
 * @throws CniError 5 when there is anything in it already, or it cannot be written
 */
export function writeProject(dir: string, files: ReadonlyMap<string, string>): void {
  const found = entriesOf(dir);
  if (found.length) {
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot make a project in "${dir}": it holds "${found[0]}" already`,
    );
  }
  try {
    for (const [path, text] of files) {
      mkdirSync(dirname(join(dir, path)), { recursive: true });
      // Never over what somebody else has written meanwhile.
      writeFileSync(join(dir, path), text, { flag: 'wx' });
    }
  } catch (cause) {
    throw new CniError(ErrorCode.ioFailure, `Cannot write to "${dir}": ${(cause as Error).message}`, {
      cause,
    });
  }
}

function entriesOf(dir: string): string[] {
  try {
    return readdirSync(dir).sort();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return [];
    throw new CniError(ErrorCode.ioFailure, `Cannot make a project in "${dir}": ${message}`, { cause });
  }
}
