// How are files read that seldom change?
import { statSync } from 'node:fs';

/** Values read from files, each again only when its file has changed. */
export class FileCache<T extends object> {
  readonly #read: (path: string) => T | undefined;
  #known = new Map<string, { readonly stamp: string; readonly value: T | undefined }>();

  constructor(read: (path: string) => T | undefined) {
    this.#read = read;
  }

  list(paths: readonly string[]): T[] {
    const before = this.#known;
    this.#known = new Map();
    for (const path of paths) {
      const stat = statSync(path, { throwIfNoEntry: false });
      if (!stat?.isFile()) continue;
      const stamp = `${stat.ino} ${stat.size} ${stat.mtimeMs}`;
      const own = before.get(path);
      this.#known.set(path, own?.stamp === stamp ? own : { stamp, value: this.#tryRead(path) });
    }
    return [...this.#known.values()].flatMap(({ value }) => value ?? []);
  }

  /** An unreadable file does not hide the others; the doctor names it. */
  #tryRead(path: string): T | undefined {
    try {
      return this.#read(path);
    } catch {
      return undefined;
    }
  }
}
