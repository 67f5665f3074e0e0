// Which attachments are being deleted without a request of their own runtime?
//
// Recovery and GC delete attachments that no runtime asks for now. A runtime that has forgotten one may attach a container
// under the same names at that very moment, and plugins find what they delete by these names. Both sides write first, then look:
// a removal leaves a mark and then looks for the note of a later ADD (generation.ts), and an ADD leaves its note and then looks
// for the mark of a removal. So at least one of them sees the other: the removal gives up, or the ADD waits for its end.
import { lstatSync, mkdirSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type AttachmentId, digestOf } from '../cni/attachment.ts';
import { notesDirs } from '../cni/directories.ts';
import { namesIn } from '../files/names-in.ts';
import { isRunning, thisProcess } from '../files/process-id.ts';
import { directoryOf, fileNameOf } from './place.ts';

/** Longest file name, in bytes (NAME_MAX of linux/limits.h). */
const MAX_BYTES = 255;

/**
 * Marks an attachment as being deleted by this process.
 * @returns removes the mark. If the run directory cannot be written there is none: then no ADD leaves a note either
 */
export function markRemoval(runDir: string, attachment: AttachmentId): () => void {
  const path = markOf(runDir, attachment);
  const { pid, start, pidns } = thisProcess();
  const target = [pid, start, pidns].join(' ');
  try {
    if (lstatSync(path, { throwIfNoEntry: false })) {
      // Two removals of one attachment do not harm each other.
      if (isLive(path)) return () => {};
      unlinkSync(path);
    } else mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    symlinkSync(target, path);
  } catch {
    return () => {};
  }
  return () => remove(path);
}

/** Whether a living process is deleting the attachment. */
export function isBeingRemoved(runDir: string, attachment: AttachmentId): boolean {
  const path = markOf(runDir, attachment);
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined && isLive(path);
}

/** Removes the marks of processes that were killed. */
export function sweepRemovals(runDir: string): void {
  const dir = notesDirs(runDir).removals;
  if (!lstatSync(dir, { throwIfNoEntry: false })) return;
  for (const name of namesIn(dir)) if (!isLive(join(dir, name))) remove(join(dir, name));
}

function markOf(runDir: string, attachment: AttachmentId): string {
  const { network, containerId, ifname } = attachment;
  const name = `${directoryOf(network)}:${fileNameOf(attachment)}`;
  const isShort = name.length <= MAX_BYTES;
  return join(
    notesDirs(runDir).removals,
    isShort ? name : `~${digestOf(`${network}\0${containerId}\0${ifname}`)}`,
  );
}

/** Processes of another process id namespace cannot be seen: they count as ended, so that no ADD waits for ever. */
function isLive(path: string): boolean {
  try {
    const [pid, start = '', pidns = ''] = readlinkSync(path).split(' ');
    return isRunning({ pid: Number(pid), start, pidns }) === true;
  } catch {
    return false;
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It is gone, or the next recovery removes it.
  }
}
