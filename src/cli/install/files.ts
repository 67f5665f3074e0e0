// Which single steps does an installation take on a file system?

import { createHash, type Hash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import * as z from 'zod/mini';
import { succeeds } from '../../cni/errors.ts';
import { parseObject } from '../../cni/json.ts';
import { syncPath, writeNewFile } from '../../files/put-file.ts';
import { ABSENT, ifThere, readIfThere } from '../../files/read-file.ts';

/** Prefix of temporary files. No runtime reads them, and the next installation removes them. */
export const UNFINISHED = '.catena-install-';

/** The lock of an installation: every user can open the directory, and would hold its lock. */
export const TURN_NAME = '.catena-turn.lock';

/** Suffix of a file that was replaced; no runtime reads it. */
export const REPLACED = '.before-catena';

/** Suffix of a file of ours that was changed by hand and is no longer wanted. Unlike one that was replaced, it never comes back. */
export const EDITED = '.edited';

/** Prefixes of a configuration's name, from the usual one to the last resort. */
const PREFIXES = ['10-', '05-', '00-', '00-00-', '00-00-00-'] as const;

/**
 * A file name for a network that sorts before all others, bytewise as in runtimes.
 * @param others names of the existing configurations
 * @throws Error if no name sorts before all of them
 */
export function nameFirst(network: string, others: readonly string[]): string {
  const found = PREFIXES.map(prefix => `${prefix}${network}.conflist`).find(name =>
    others.every(other => Buffer.compare(Buffer.from(name), Buffer.from(other)) < 0),
  );
  if (found !== undefined) return found;
  const [first] = [...others].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  throw new Error(`Cannot find a file name that sorts before "${first}": choose one with --conf-name`);
}

export function nameUsually(network: string): string {
  return `${PREFIXES[0]}${network}.conflist`;
}

/** Every file operation of an installation; the machine may lose power between any two of them. */
export const FILES = {
  makeDir(path: string, mode = 0o755): void {
    mkdirSync(path, { recursive: true, mode });
  },
  /** Copies an executable and fsyncs the copy. @throws the system error; then there is no part of it */
  copy(source: string, target: string): void {
    try {
      copyFileSync(source, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    } catch (cause) {
      // A part of it would keep a full disk full.
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') rmSync(target, { force: true });
      throw cause;
    }
    chmodSync(target, 0o755);
    syncPath(target);
  },
  /** Writes and fsyncs a new file with exactly this mode. @throws the system error; then there is no such file */
  write(target: string, text: string, mode = 0o644): void {
    writeNewFile(target, text, { mode, sync: true });
  },
  /** Creates a hard link. @throws if the file system has no hard links */
  link: linkSync,
  /** The one step that others can observe: the target changes from the old file to the new one. */
  rename: renameSync,
  /** Ignored if missing. */
  remove(path: string): void {
    rmSync(path, { force: true });
  },
  /** Ignored if missing or not empty. */
  removeDir(path: string): void {
    try {
      rmdirSync(path);
    } catch (cause) {
      if (!['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes((cause as NodeJS.ErrnoException).code ?? ''))
        throw cause;
    }
  },
  /** Makes the names in a directory durable. */
  sync: syncPath,
};

/** A file system may have no hard links. */
export function linkOrCopy(source: string, target: string): void {
  if (!succeeds(() => FILES.link(source, target))) FILES.copy(source, target);
}

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

export const MANIFEST_NAME = '.catena-install.json';

/** The manifest of a directory; undefined if nothing was installed there. @throws as {@link readNote} */
export function findManifest(binDir: string): Manifest | undefined {
  return readNote(join(binDir, MANIFEST_NAME), 'an installation record', Manifest);
}

/** Writes the manifest atomically. */
export function writeManifest(binDir: string, manifest: Manifest): void {
  replaceNote(join(binDir, MANIFEST_NAME), manifest, join(binDir, `${UNFINISHED}note`));
}

/**
 * A note of ours; undefined if there is none.
 * @param what it is, with its article: `a record of swaps`
 * @throws CniError 5 or 6 if it cannot be read, Error if it is something else
 */
export function readNote<T extends z.ZodMiniType>(
  path: string,
  what: string,
  schema: T,
): z.output<T> | undefined {
  const name = what.replace(/^an? /, '');
  const text = readIfThere(path, name, ABSENT);
  if (text === undefined) return undefined;
  const parsed = z.safeParse(schema, parseObject(text, `${name} "${path}"`));
  if (parsed.success) return parsed.data;
  throw new Error(`Cannot read "${path}": it is not ${what}; remove it by hand`);
}

/** Writes a note atomically. @param unfinished its temporary file, in the same directory */
export function replaceNote(path: string, note: object, unfinished: string): void {
  FILES.remove(unfinished);
  FILES.write(unfinished, `${JSON.stringify(note, null, 2)}\n`);
  FILES.rename(unfinished, path);
  FILES.sync(dirname(path));
}

/** What is at a path, without following symbolic links. */
export interface FoundFile {
  readonly kind: 'file' | 'directory' | 'other';
  /** For a file: equal for two names of the same file. */
  readonly inode?: string;
  readonly digest?: string;
}

/** Examines files, and reads each only once, however many names it has. */
export class Inspector {
  readonly #digests = new Map<string, string>();

  find(path: string): FoundFile | undefined {
    const stat = ifThere(() => lstatSync(path));
    if (stat === undefined) return undefined;
    if (stat.isDirectory()) return { kind: 'directory' };
    if (!stat.isFile()) return { kind: 'other' };
    const inode = `${stat.dev}:${stat.ino}`;
    const digest = this.#digests.get(inode) ?? digestOf(path);
    this.#digests.set(inode, digest);
    return { kind: 'file', inode, digest };
  }
}

/** The digest of a text, equal to that of a file with this text. */
export function digestOfText(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function digestOf(path: string): string {
  const hash: Hash = createHash('sha256');
  const chunk = new Uint8Array(1 << 20);
  const fd = openSync(path, 'r');
  try {
    for (let length = readSync(fd, chunk); length > 0; length = readSync(fd, chunk))
      hash.update(chunk.subarray(0, length));
  } finally {
    closeSync(fd);
  }
  return hash.digest('hex');
}
