// Is a file identical to another one, or one that we installed?
import { createHash, type Hash } from 'node:crypto';
import { closeSync, lstatSync, openSync, readSync, type Stats } from 'node:fs';

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

  /** What is at a path; undefined if it does not exist. */
  find(path: string): FoundFile | undefined {
    const stat = statOf(path);
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

function statOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw cause;
  }
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
