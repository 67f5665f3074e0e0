// Which steps does an installation take on a file system, one at a time?
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeSync,
} from 'node:fs';

/** Everything an installation does to files; between any two steps the machine may lose power. */
export interface Files {
  makeDir(path: string, mode?: number): void;
  /** A copy of an executable, on disk when this returns. */
  copy(source: string, target: string): void;
  /** A new file, on disk when this returns. */
  write(target: string, text: string, mode?: number): void;
  /** A second name. @throws where the file system has none */
  link(source: string, target: string): void;
  /** The one step that others can see: the target is the old file, and then the new one. */
  rename(source: string, target: string): void;
  /** An absent file is fine. */
  remove(path: string): void;
  /** One that is not empty stays, and an absent one is fine. */
  removeDir(path: string): void;
  /** Makes names of a directory durable. */
  sync(dir: string): void;
}

/** The file system of this machine. */
export const REAL_FILES: Files = {
  makeDir(path, mode = 0o755) {
    mkdirSync(path, { recursive: true, mode });
  },
  copy(source, target) {
    copyFileSync(source, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    chmodSync(target, 0o755);
    syncPath(target);
  },
  write(target, text, mode = 0o644) {
    const fd = openSync(target, 'wx', mode);
    try {
      writeSync(fd, text);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  },
  link: linkSync,
  rename: renameSync,
  remove(path) {
    rmSync(path, { force: true });
  },
  removeDir(path) {
    try {
      rmdirSync(path);
    } catch (cause) {
      if (!['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes((cause as NodeJS.ErrnoException).code ?? ''))
        throw cause;
    }
  },
  sync: syncPath,
};

function syncPath(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
