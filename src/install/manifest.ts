// What has been installed into a directory, so that it can be told from what others put there?
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { parseObject } from '../cni/json.ts';
import type { Files } from './files.ts';
import { UNFINISHED } from './names.ts';

/** Digests that a file of ours may have, by name: while an installation is under way, the old one's and the new one's. */
const Digests = z.record(z.string(), z.array(z.string()));

/** The note in the directory of executables; runtimes read every `.json` file of the other directory. */
export const Manifest = z.looseObject({
  catena: z.string(),
  executables: Digests,
  configurations: Digests,
});
export type Manifest = z.output<typeof Manifest>;

/** Name of the note. */
export const MANIFEST_NAME = '.catena-install.json';

/** The note of a directory; undefined when nothing was installed there. @throws CniError 6 when it cannot be read */
export function findManifest(binDir: string): Manifest | undefined {
  const path = join(binDir, MANIFEST_NAME);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw new Error(`Cannot read "${path}": ${(cause as Error).message}`, { cause });
  }
  const parsed = z.safeParse(Manifest, parseObject(text, `note of the installation "${path}"`));
  if (parsed.success) return parsed.data;
  throw new Error(`Cannot read "${path}": it is no note of an installation; remove it by hand`);
}

/** Puts the note into place. */
export function writeManifest(binDir: string, manifest: Manifest, files: Files): void {
  const unfinished = join(binDir, `${UNFINISHED}note`);
  files.remove(unfinished);
  files.write(unfinished, `${JSON.stringify(manifest, null, 2)}\n`);
  files.rename(unfinished, join(binDir, MANIFEST_NAME));
  files.sync(binDir);
}
