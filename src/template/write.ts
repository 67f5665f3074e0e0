// How is a project written to disk without overwriting existing files?
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';

/**
 * Writes files into a directory, which is created if missing.
 * @throws CniError 5 if it is not empty or cannot be written
 */
export function writeProject(dir: string, files: ReadonlyMap<string, string | Uint8Array>): void {
  const found = entriesOf(dir);
  if (found.length) {
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot make a project in "${dir}": it already contains "${found[0]}"`,
    );
  }
  try {
    for (const [path, content] of files) {
      mkdirSync(dirname(join(dir, path)), { recursive: true });
      // Never overwrites a file that was written since the check.
      writeFileSync(join(dir, path), content, { flag: 'wx' });
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
