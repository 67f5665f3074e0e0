// Where are the executables that will delete attachments from now on?
import { chmodSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

/** Executables by plugin name. */
export type Heirs = ReadonlyMap<string, string>;

/** Finds the plugins in the directories; the first directory that has one counts. */
export function findHeirs(types: Iterable<string>, dirs: readonly string[]): Heirs {
  const found = [...types].flatMap(type => {
    const path = dirs.map(dir => resolve(dir, type)).find(isFile);
    return path === undefined ? [] : [[type, path] as const];
  });
  return new Map(found);
}

/** Links them into one temporary directory while the work runs. */
export async function withHeirs<T>(heirs: Heirs, work: (dir: string) => Promise<T>): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), 'catena-handover-'));
  try {
    for (const [type, path] of heirs) symlinkSync(path, join(dir, type));
    // It must be accessible from another user's namespace, too.
    chmodSync(dir, 0o755);
    return await work(dir);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}
