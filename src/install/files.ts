// Which single steps does an installation take on a file system?
import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  fchmodSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';

/** Every file operation of an installation; the machine may lose power between any two of them. */
export interface Files {
  makeDir(path: string, mode?: number): void;
  /** Copies an executable and fsyncs the copy. */
  copy(source: string, target: string): void;
  /** Writes and fsyncs a new file with exactly this mode. @throws the system error; then there is no such file */
  write(target: string, text: string, mode?: number): void;
  /** Creates a hard link. @throws if the file system has no hard links */
  link(source: string, target: string): void;
  /** The one step that others can observe: the target changes from the old file to the new one. */
  rename(source: string, target: string): void;
  /** Ignored if missing. */
  remove(path: string): void;
  /** Ignored if missing or not empty. */
  removeDir(path: string): void;
  /** Makes the names in a directory durable. */
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
      // Not writeSync: on an almost full disk it writes a part and says so only by its result.
      writeFileSync(fd, text);
      fchmodSync(fd, mode);
      fsyncSync(fd);
    } catch (cause) {
      rmSync(target, { force: true });
      throw cause;
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
