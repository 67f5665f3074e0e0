// Which files were installed into a directory, as opposed to files of other programs?
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { parseObject } from '../cni/json.ts';
import type { Files } from './files.ts';
import { UNFINISHED } from './names.ts';

/** Digests that a file of ours may have, by name. During an installation these are the old and the new one. */
const Digests = z.record(z.string(), z.array(z.string()));

/** The manifest is in the directory of executables, since runtimes read every `.json` file of the configuration directory. */
export const Manifest = z.looseObject({
  catena: z.string(),
  executables: Digests,
  configurations: Digests,
  /** What starts the daemon, by path. */
  starters: z.optional(Digests),
  /** What shells read, by path. */
  shared: z.optional(Digests),
});
export type Manifest = z.output<typeof Manifest>;

/** File name of the manifest. */
export const MANIFEST_NAME = '.catena-install.json';

/** The manifest of a directory; undefined if nothing was installed there. @throws CniError 6 if it cannot be read */
export function findManifest(binDir: string): Manifest | undefined {
  const path = join(binDir, MANIFEST_NAME);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw new Error(`Cannot read "${path}": ${(cause as Error).message}`, { cause });
  }
  const parsed = z.safeParse(Manifest, parseObject(text, `installation record "${path}"`));
  if (parsed.success) return parsed.data;
  throw new Error(`Cannot read "${path}": it is not an installation record; remove it by hand`);
}

/** Writes the manifest atomically. */
export function writeManifest(binDir: string, manifest: Manifest, files: Files): void {
  const unfinished = join(binDir, `${UNFINISHED}note`);
  files.remove(unfinished);
  files.write(unfinished, `${JSON.stringify(manifest, null, 2)}\n`);
  files.rename(unfinished, join(binDir, MANIFEST_NAME));
  files.sync(binDir);
}
