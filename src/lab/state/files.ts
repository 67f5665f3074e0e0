// Which files did plugins write?
import { type Dirent, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { StateObject } from './object.ts';

/**
 * All files in the directories that were empty when the lab began.
 * @param skip paths that belong to the lab itself, or show the machine's files
 */
export function readFiles(dirs: readonly string[], skip: readonly string[]): StateObject[] {
  return dirs.flatMap(dir => filesBelow(dir, skip)).map(describe);
}

function filesBelow(dir: string, skip: readonly string[]): string[] {
  return listDir(dir).flatMap(entry => {
    const path = join(dir, entry.name);
    if (skip.includes(path)) return [];
    return entry.isDirectory() ? filesBelow(path, skip) : [path];
  });
}

/** A directory that has been deleted since has no files. */
function listDir(dir: string): Dirent[] {
  try {
    return readdirSync(dir, { withFileTypes: true });
  } catch {
    return [];
  }
}

function describe(path: string): StateObject {
  return {
    key: `file ${path}`,
    words: `file ${path}`,
    parent: dirname(path),
    counted: ['file', 'files'],
    // Files that exist once per container have an address or an id in their name.
    shape: `file ${path.replace(/[^/]*$/, collapse)}`,
  };
}

/** `10.1.0.2` and `fd00::2` become `#`, `last_reserved_ip.0` becomes `last_reserved_ip.#`. */
function collapse(name: string): string {
  return name.replace(/[0-9a-f]*\d[0-9a-f]*/gi, '#').replace(/#([.:-]+#)*/g, '#');
}
