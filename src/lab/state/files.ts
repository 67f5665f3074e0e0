// Which files did links write?
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { StateObject } from './object.ts';

/** Content that is looked through for the container's name. */
const READ_BYTES = 4096;

/**
 * All files below the directories that were fresh when the lab began.
 * @param skip paths that are the lab's own, or shown from the machine
 */
export function readFiles(dirs: readonly string[], skip: readonly string[]): StateObject[] {
  return dirs.flatMap(dir => filesBelow(dir, skip)).map(describe);
}

function filesBelow(dir: string, skip: readonly string[]): string[] {
  if (skip.includes(dir)) return [];
  let entries: ReturnType<typeof readEntries>;
  try {
    entries = readEntries(dir);
  } catch {
    return [];
  }
  return entries.flatMap(entry => {
    const path = join(dir, entry.name);
    if (skip.includes(path)) return [];
    return entry.isDirectory() ? filesBelow(path, skip) : [path];
  });
}

function readEntries(dir: string) {
  return readdirSync(dir, { withFileTypes: true });
}

function describe(path: string): StateObject {
  return {
    key: `file ${path}`,
    words: `file ${path}`,
    // One file per container has an address or an id in its name.
    shape: `file ${path.replace(/[^/]*$/, name => name.replace(/[0-9a-f]*\d[0-9a-f]*/gi, '#').replace(/(#[.:-]*)+/g, '#'))}`,
    state: { content: contentOf(path) },
  };
}

function contentOf(path: string): string {
  const { size } = lstatSync(path);
  if (size > READ_BYTES) return `${size} bytes`;
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}
