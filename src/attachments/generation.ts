// Which ADD made an attachment?
//
// Container id, interface and network may be used again. A generation tells one ADD of an attachment from the next: it is a note
// in the run directory, which the first plugin of an ADD writes before it does anything else, and which the first plugin of a DEL
// removes before it deletes anything. The note is a symbolic link to a name that is never used again, because creating one takes a single, atomic system call. GC takes a
// snapshot of the notes when it begins. An attachment with a note that is not in the snapshot was begun later, so no list of
// valid attachments that GC was given can name it. No clocks are compared, and no process waits for another.
import { lstatSync, mkdirSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type AttachmentId, digestOf } from '../cni/attachment.ts';
import { notesDirs } from '../cni/directories.ts';
import { fileExists, namesIn } from '../files/read-file.ts';
import { cacheFileOf, directoryOf, fileNameOf } from './place.ts';

/** A container's interface on some network. */
export type Key = Pick<AttachmentId, 'containerId' | 'ifname'>;

/** A note, and the attachment it belongs to. */
export interface Generation extends Key {
  /** Never used again. */
  readonly token: string;
  /** The boot it was written in, as {@link bootId} names it. */
  readonly boot: string;
  /** Our runner made the ADD, and has it on record. */
  readonly isOurs: boolean;
  /** When it was written, in milliseconds since the epoch by the clock of the kernel's file times. */
  readonly time: number;
}

/**
 * Notes that an ADD of the attachment begins.
 * @param options.renew this is the first plugin of the ADD: replace the note of an earlier ADD; otherwise keep it
 * @param options.isOurs as in {@link Generation}
 * @returns the token, if the note is new
 * @throws the system error
 */
export function noteGeneration(
  runDir: string,
  attachment: AttachmentId,
  {
    renew,
    boot,
    isOurs = false,
  }: { readonly renew: boolean; readonly boot: string; readonly isOurs?: boolean },
): string | undefined {
  const path = noteFileOf(runDir, attachment);
  const token = `${boot.replaceAll(/[^\w-]/g, '_')}.${crypto.randomUUID()}${isOurs ? OURS : ''}`;
  if (writeNote(path, attachment, token)) return token;
  if (!renew) return undefined;
  removeNote(path);
  return writeNote(path, attachment, token) ? token : undefined;
}

/** Puts the note of an earlier ADD back in the place of that of a later one, which was refused. @throws the system error */
export function restoreGeneration(runDir: string, attachment: AttachmentId, token: string): void {
  const path = noteFileOf(runDir, attachment);
  removeNote(path);
  writeNote(path, attachment, token);
}

/** @returns whether there was none */
function writeNote(path: string, attachment: AttachmentId, token: string): boolean {
  const target = targetFor(attachment, token);
  try {
    symlinkSync(target, path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return false;
    if (code !== 'ENOENT') throw error;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    symlinkSync(target, path);
  }
  return true;
}

/** Ends the token of an ADD by our runner. */
const OURS = '.ours';

/** Removes the note of a deleted attachment. A missing one is ignored. */
export function forgetGeneration(runDir: string, attachment: AttachmentId): void {
  const path = noteFileOf(runDir, attachment);
  if (lstatSync(path, { throwIfNoEntry: false })) removeNote(path);
}

/** The note of an attachment; undefined if it has none, for example because none of our plugins took part in its ADD. */
export function findGeneration(runDir: string, attachment: AttachmentId): Generation | undefined {
  return readNote(noteFileOf(runDir, attachment));
}

/** Every note of a network. */
export function listGenerations(runDir: string, network: string): Generation[] {
  const dir = join(notesDirs(runDir).generations, directoryOf(network));
  return namesIn(dir).flatMap(name => readNote(join(dir, name)) ?? []);
}

/** A note younger than this may be of an ADD that has made nothing yet. */
const ADD_MAY_TAKE_MS = 10 * 60_000;

/** Attachments whose ADD may still be running: the note of one that died counts for as long as an ADD may take. */
export function listRecentlyBegun(runDir: string, network: string): Generation[] {
  return listGenerations(runDir, network).filter(({ time }) => Math.abs(Date.now() - time) < ADD_MAY_TAKE_MS);
}

/** Whether a container id matches the one of a note in the kernel, which has a digest instead of a long id. */
export function isContainer(containerId: string, noted: string): boolean {
  return containerId === noted || (noted.startsWith('~') && `~${digestOf(containerId)}` === noted);
}

function noteFileOf(runDir: string, attachment: AttachmentId): string {
  return join(notesDirs(runDir).generations, directoryOf(attachment.network), fileNameOf(attachment));
}

/**
 * Target of a note: its token, and the names if they are too long for a file name. A file system keeps a short target in
 * the inode, which saves a block.
 */
function targetFor(attachment: AttachmentId, token: string): string {
  const { containerId, ifname } = attachment;
  const isInName = fileNameOf(attachment) === `${containerId}:${ifname}`;
  return isInName ? token : `${token}:${containerId}:${ifname}`;
}

function readNote(path: string): Generation | undefined {
  try {
    const time = lstatSync(path, { throwIfNoEntry: false })?.mtimeMs;
    if (time === undefined) return undefined;
    const [token, ...own] = readlinkSync(path).split(':');
    const [containerId, ifname, ...more] = own.length ? own : basename(path).split(':');
    if (!token || !containerId || !ifname || more.length > 0) return undefined;
    const [boot = ''] = token.split('.');
    return { token, boot, isOurs: token.endsWith(OURS), time, containerId, ifname };
  } catch {
    return undefined;
  }
}

function removeNote(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** Whether an attachment has an entry in the directory of its runtime, which outlives its note. @throws CniError 7 for an impossible id */
export function hasEntry(cacheDir: string, id: AttachmentId): boolean {
  return fileExists(cacheFileOf(cacheDir, id));
}
