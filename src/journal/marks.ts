// Which records need work, without reading all of them?
import { mkdirSync, symlinkSync, unlinkSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import type { AttachmentId } from '../cni/attachment.ts';
import { sweepUnfinished } from '../files/put-file.ts';
import { listNames } from './files.ts';
import { directoryOf, markFileOf, marksDir, recordFileOf, recordsDir } from './place.ts';

/** Marks a record as unsettled. @throws the system error */
export function setMark(stateDir: string, id: AttachmentId): void {
  const mark = markFileOf(stateDir, id);
  const target = relative(dirname(mark), recordFileOf(stateDir, id));
  try {
    symlinkSync(target, mark);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT') throw error;
    mkdirSync(dirname(mark), { recursive: true, mode: 0o700 });
    symlinkSync(target, mark);
  }
}

/** Removes the mark of a record, which is settled. */
export function settle(stateDir: string, id: AttachmentId): void {
  takeMark(markFileOf(stateDir, id));
}

/** Removes a mark. Only with the lock of the attachment. */
export function takeMark(mark: string): void {
  try {
    unlinkSync(mark);
  } catch {
    // A process that later finds the mark without a need removes it.
  }
}

/** A record that may need work. */
export interface Marked {
  /** Its file, which may have been deleted. */
  readonly file: string;
  readonly mark: string;
  /** Names its lock. */
  readonly key: string;
}

/**
 * The marks of a network, or of all. Also removes the temporary files of dead processes, which are in the same directories.
 * @throws CniError 5
 */
export function listMarked(stateDir: string, network?: string): Marked[] {
  const root = marksDir(stateDir);
  const names = network === undefined ? listNames(root) : [directoryOf(network)];
  return names.flatMap(name => {
    const dir = join(root, name);
    return listNames(dir, hidden => sweepUnfinished(dir, hidden)).map(one => ({
      file: join(recordsDir(stateDir), name, one),
      mark: join(dir, one),
      key: join(name, one),
    }));
  });
}
