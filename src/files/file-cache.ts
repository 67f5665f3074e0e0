// How are directories of files read that seldom change?
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { namesIfThere, UNREADABLE } from './read-file.ts';

/** What changes within this time of a look may leave the same stamp, as long as the clock of file times takes for a tick. */
const SURE_MS = 1_000;

interface Read<T> extends Stamp {
  readonly value: T | undefined;
}

interface Folder<T> extends Stamp {
  readonly files: ReadonlyMap<string, Read<T>>;
}

interface Stamp {
  readonly stamp: string;
  /** It was not changed just before the look, so a later change gives another stamp. */
  readonly isSure: boolean;
}

/** Values read from the files of directories, each again only when its file has changed. */
export class FileCache<T extends object> {
  readonly #read: (path: string) => T | undefined;
  readonly #isLasting: (value: T, hasChanged: boolean) => boolean;
  #folders = new Map<string, Folder<T>>();

  /**
   * @param isLasting whether a value holds until the next look at each file, although its directory, as the second argument says, has
   *   changed or has not
   */
  constructor(
    read: (path: string) => T | undefined,
    isLasting: (value: T, hasChanged: boolean) => boolean = () => true,
  ) {
    this.#read = read;
    this.#isLasting = isLasting;
  }

  /**
   * @param scope `new`: directories that have not changed are not read, and files whose values last are not looked at
   * @throws CniError 5 when a directory cannot be listed for want of descriptors or memory
   */
  list(dirs: readonly string[], scope: 'all' | 'new' = 'all'): T[] {
    const before = this.#folders;
    this.#folders = new Map(dirs.map(dir => [dir, this.#look(dir, before.get(dir), scope)]));
    const files = [...this.#folders.values()].flatMap(folder => [...folder.files.values()]);
    return files.flatMap(({ value }) => value ?? []);
  }

  #look(dir: string, before: Folder<T> | undefined, scope: 'all' | 'new'): Folder<T> {
    const now = stampOf(dir, 'isDirectory') ?? { stamp: '', isSure: true };
    const hasChanged = scope === 'all' || !before?.isSure || before.stamp !== now.stamp;
    const files = new Map<string, Read<T>>();
    for (const name of hasChanged ? namesIfThere(dir, 'files', UNREADABLE) : before.files.keys()) {
      const own = before?.files.get(name);
      const lasts =
        scope === 'new' && own?.isSure && own.value !== undefined && this.#isLasting(own.value, hasChanged);
      const file = lasts ? own : this.#lookAt(join(dir, name), own);
      if (file) files.set(name, file);
    }
    return { ...now, files };
  }

  #lookAt(path: string, before: Read<T> | undefined): Read<T> | undefined {
    const now = stampOf(path, 'isFile');
    if (now === undefined) return undefined;
    if (before?.stamp === now.stamp) return { ...now, value: before.value };
    try {
      return { ...now, value: this.#read(path) };
    } catch {
      // It does not hide the others; the doctor names it. It may be readable at the next look.
      return { stamp: '', isSure: false, value: undefined };
    }
  }
}

/** Undefined for a missing file, one of another kind, and a link to itself. */
function stampOf(path: string, kind: 'isFile' | 'isDirectory'): Stamp | undefined {
  try {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (!stat?.[kind]()) return undefined;
    const { ino, size, mtimeMs } = stat;
    return { stamp: `${ino} ${size} ${mtimeMs}`, isSure: Math.abs(Date.now() - mtimeMs) > SURE_MS };
  } catch {
    return undefined;
  }
}
