// Which ADD made an attachment?
//
// Container id, interface and network may be used again. A generation tells one ADD of an attachment from the next: README.md, "GC while
// ADDs run". The note is a symbolic link, because creating one takes a single, atomic system call. No clocks are compared, and no process
// waits for another.
import { lstatSync, readlinkSync, symlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type AttachmentId, cacheFileOf, directoryOf, fileNameOf } from '../cni/attachment.ts';
import { cniCacheDir, notesDirs, runDir } from '../cni/directories.ts';
import { attempt, describeError, tryAgainLater } from '../cni/errors.ts';
import { type JsonObject, memberOf } from '../cni/json.ts';
import { bootId, RUNNER_VARIABLE } from '../files/process-stat.ts';
import { removeFile } from '../files/put-file.ts';
import { fileExists, inDirectory, namesIfThere, UNREADABLE, unlessThere } from '../files/read-file.ts';
import { pause } from '../wait.ts';
import { isBeingRemoved } from './lock.ts';

export interface Generation extends Pick<AttachmentId, 'containerId' | 'ifname'> {
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
 * @throws the system error; CniError 5 if that of an earlier ADD cannot be removed
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
  const isNew = writeNote(path, attachment, token) || (renew && replaceNote(path, attachment, token));
  return isNew ? token : undefined;
}

function replaceNote(path: string, attachment: AttachmentId, token: string): boolean {
  removeFile(path, NOTE);
  return writeNote(path, attachment, token);
}

function writeNote(path: string, attachment: AttachmentId, token: string): boolean {
  const target = targetFor(attachment, token);
  return inDirectory(path, () => unlessThere(() => symlinkSync(target, path)));
}

/** Ends the token of an ADD by our runner. */
const OURS = '.ours';

const NOTE = 'note of an ADD';

/** Removes the note of a deleted attachment. A missing one is ignored. @throws CniError 5 */
export function forgetGeneration(runDir: string, attachment: AttachmentId): void {
  removeFile(noteFileOf(runDir, attachment), NOTE);
}

/** The note of an attachment; undefined if it has none, for example because none of our plugins took part in its ADD. */
export function findGeneration(runDir: string, attachment: AttachmentId): Generation | undefined {
  return readNote(noteFileOf(runDir, attachment));
}

/** Every note of a network. @throws CniError 5 when they cannot be listed */
export function listGenerations(runDir: string, network: string): Generation[] {
  const dir = join(notesDirs(runDir).generations, directoryOf(network));
  return namesIfThere(dir, 'notes of ADDs', UNREADABLE).flatMap(name => readNote(join(dir, name)) ?? []);
}

/** A note younger than this may be of an ADD that has made nothing yet. */
const ADD_MAY_TAKE_MS = 10 * 60_000;

/** Attachments whose ADD may still be running: the note of one that died counts for as long as an ADD may take. */
export function listRecentlyBegun(runDir: string, network: string): Generation[] {
  return listGenerations(runDir, network).filter(({ time }) => Math.abs(Date.now() - time) < ADD_MAY_TAKE_MS);
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
  return attempt(() => {
    const time = lstatSync(path, { throwIfNoEntry: false })?.mtimeMs;
    if (time === undefined) return undefined;
    const [token, ...own] = readlinkSync(path).split(':');
    const [containerId, ifname, ...more] = own.length ? own : basename(path).split(':');
    if (!token || !containerId || !ifname || more.length > 0) return undefined;
    const [boot = ''] = token.split('.');
    return { token, boot, isOurs: token.endsWith(OURS), time, containerId, ifname };
  });
}

/** The part of a plugin's call that its generation needs. */
interface NotedCall {
  readonly attachment: AttachmentId;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly request: JsonObject;
  readonly log: { debug(message: string): void };
}

/**
 * Runs an ADD with a note of its generation. The first plugin of an ADD, which gets no previous result, begins a
 * new generation. If the note cannot be written, ADD continues without: GC then has only its list to go by.
 */
export async function underNote<T>(call: NotedCall, add: () => Promise<T>): Promise<T> {
  const { attachment, environment, request, log } = call;
  const dir = runDir(environment);
  const before = tokenOf(environment, attachment);
  let token: string | undefined;
  try {
    const renew = memberOf(request, 'prevResult') === undefined;
    const isOurs = environment[RUNNER_VARIABLE] !== undefined;
    token = noteGeneration(dir, attachment, { renew, boot: bootId(environment), isOurs });
  } catch (cause) {
    log.debug(`Cannot write a note of the ADD in "${dir}": ${describeError(cause)}; GC may miss it`);
  }
  try {
    if (token !== undefined) await outwaitRemoval(call, token);
    return await add();
  } catch (thrown) {
    // An ADD of an attachment that exists already is refused, and leaves that one its note.
    if (token !== undefined && tokenOf(environment, attachment) === token) forget(call, before);
    throw thrown;
  }
}

/** Longest wait for the removal of an earlier attachment of the same name. */
const REMOVAL_MS = 10_000;
const LOOK_AGAIN_MS = 20;

/**
 * Waits for a removal that may have looked for notes before ours was written. Its plugins remove notes of this name, ours among them,
 * which the next removal has to see.
 * @throws CniError 11
 */
async function outwaitRemoval({ attachment, environment }: NotedCall, token: string): Promise<void> {
  const until = performance.now() + REMOVAL_MS;
  while (isBeingRemoved(environment, attachment)) {
    if (performance.now() > until) {
      const { network, containerId, ifname } = attachment;
      throw tryAgainLater(
        `Cannot attach interface "${ifname}" of container "${containerId}" to network "${network}": an earlier attachment of that name is still being deleted`,
      );
    }
    await pause(LOOK_AGAIN_MS);
    if (tokenOf(environment, attachment) !== token)
      replaceNote(noteFileOf(runDir(environment), attachment), attachment, token);
  }
}

/**
 * Whether an attachment exists: one that does has a note, unless that was lost with the run directory, and then its runtime's entry. A long
 * id is not in its alias, and may be anyone's.
 */
export function isAttached(environment: NotedCall['environment'], named: AttachmentId): boolean {
  if (named.containerId.startsWith('~') || tokenOf(environment, named)) return true;
  return fileExists(cacheFileOf(cniCacheDir(environment), named));
}

function tokenOf(environment: NotedCall['environment'], id: AttachmentId): string | undefined {
  return findGeneration(runDir(environment), id)?.token;
}

/**
 * Removes the note of an attachment that is deleted. A DEL does so before it deletes anything: a repair during the DEL sees by the
 * missing note that it has begun.
 * @param before the note to put in its place
 */
export function forget({ attachment, environment, log }: Omit<NotedCall, 'request'>, before?: string): void {
  const dir = runDir(environment);
  try {
    if (before === undefined) forgetGeneration(dir, attachment);
    else replaceNote(noteFileOf(dir, attachment), attachment, before);
  } catch (cause) {
    log.debug(`Cannot remove a note in "${dir}": ${describeError(cause)}; GC removes it`);
  }
}
