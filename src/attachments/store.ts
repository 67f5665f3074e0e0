// Which attachments do we know, and what of them is unfinished?
//
// README.md says what entries and notes are, and when a note is over. Who meets such a one passes it over, and who has the lock removes it.
import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { AttachmentId } from '../cni/attachment.ts';
import { notesDirs, runDir } from '../cni/directories.ts';
import { attempt, CniError, ErrorCode, orTell } from '../cni/errors.ts';
import { bootId, isOfEarlierBoot } from '../files/process-stat.ts';
import { putFile, sweepUnfinished } from '../files/put-file.ts';
import { fileExists, tryRead } from '../files/read-file.ts';
import { type EntryFilter, isMeant, listEntries, readEntry, sweepCache } from './entries.ts';
import { type HoldCall, type Past, pastOf, tryHold } from './hold.ts';
import { findHolder, type LockPlace, sweepDeadLocks, sweepLocks } from './lock.ts';
import {
  cacheDirsOf,
  findLaterEntry,
  joinKnown,
  type KnownAttachment,
  madeAgain,
  noteFiles,
  noteIfUnnoted,
  noteIn,
  ofEntry,
  type Places,
  readRecord,
  standing,
} from './notes.ts';

export { type Held, type HeldKnown, hold, pastOf, tryHold } from './hold.ts';
export { findHolder } from './lock.ts';
export { type KnownAttachment, lifeOf, type Settings } from './notes.ts';

interface KnownList {
  /** Those of other runtimes, then those of each journal in turn: two journals may have one of the same name. */
  readonly attachments: readonly KnownAttachment[];
  /** Files that cannot be used, with the reason. At most their names tell which attachment they belong to. */
  readonly damaged: readonly CniError[];
}

/**
 * Lists attachments, whichever runtime made them. An unusable file does not hide the others.
 * @throws CniError 5 when a directory cannot be read; a missing one is empty
 */
export function listAttachments(places: Places, filter: EntryFilter = {}): KnownList {
  const { cacheDir = '', journals = [] } = places;
  const damaged: CniError[] = [];
  const tell = (problem: CniError) => damaged.push(problem);
  const notes = journals.flatMap(stateDir =>
    noteFiles(stateDir, filter.network).flatMap(file => orTell(tell, () => noteIn(stateDir, file)) ?? []),
  );
  const dirs = new Set([...(cacheDir ? [cacheDir] : []), ...journals.flatMap(cacheDirsOf)]);
  const lists = [...dirs].map(dir => ({ dir, ...listEntries(dir, filter) }));
  damaged.unshift(...lists.flatMap(list => list.damaged));
  const entries = new Map(lists.map(list => [list.dir, list.entries]));
  const meant = notes.filter(note => isMeant(note, filter));
  return { attachments: joinKnown(places, entries, meant), damaged };
}

/**
 * What is known of an attachment: by the journals, which have what is unfinished, else by its entry.
 * @throws CniError 6 when its note or entry is damaged or of another kind, 5 when it cannot be read, 7 for an impossible id
 */
export function readAttachment(
  { cacheDir, journals = [] }: Places,
  id: AttachmentId,
): KnownAttachment | undefined {
  for (const stateDir of journals) {
    const one = readRecord(stateDir, id);
    if (one) return one;
  }
  const entry = cacheDir === undefined ? undefined : readEntry(cacheDir, id);
  return entry && ofEntry(entry, cacheDir ?? '', journals);
}

/** When our ADD of it began, or, of another runtime's, when its entry was written: in milliseconds since the epoch, if that is known. */
export function addedAt({ stateDir, runner, file }: KnownAttachment): number | undefined {
  if (stateDir !== undefined) return Date.parse(runner.time) || undefined;
  return attempt(() => statSync(file).mtimeMs);
}

/** An attachment of which something is unfinished, and no process works on it. */
interface Unsettled {
  readonly record: KnownAttachment;
  readonly past: Past;
}

/** A note that some operation has left, to be read when it is its turn. */
interface Left {
  readonly file: string;
  /**
   * What it says is to be deleted, or was being changed. One that is over is removed, with a warning if the attachment has been made again.
   * @throws CniError 6 for a note that is damaged, 5
   */
  read(): Unsettled | undefined;
}

/**
 * What operations, and an earlier boot, have left of a network, or of all. Also removes what dead processes left half written.
 * @param how `brief`: a verb on one network looks on its way; `whole`: nothing else is to be done
 * @throws CniError 5
 */
export function listLeft(
  place: SweptPlace & LockPlace,
  how: 'brief' | 'usual' | 'whole',
  network: string | undefined,
  onWarning: HoldCall['onWarning'],
): Left[] {
  noteEarlierBoots(place, how === 'whole', onWarning);
  sweep(place, how === 'brief' ? how : 'all');
  return noteFiles(place.stateDir, network).map(file => ({
    file,
    read: () => readUnsettled(place, file, onWarning),
  }));
}

function readUnsettled(
  place: LockPlace,
  file: string,
  onWarning: HoldCall['onWarning'],
): Unsettled | undefined {
  const note = noteIn(place.stateDir, file);
  const noted = note && pastOf(note, place.env);
  // The note stays for a runner of that namespace.
  if (note === undefined || noted?.kind === 'elsewhere') return undefined;
  const record = standing(place.stateDir, note);
  const past = record && pastOf(record, place.env);
  // A process that finishes a change, or repairs, has a lock and no note.
  const isChanging = past?.kind === 'changing' && !past.holder && !findHolder(place, note);
  if (record && past && (isChanging || past.toDelete !== undefined)) return { record, past };
  const later = !record && noted?.toDelete !== undefined && findLaterEntry(note);
  if (later) onWarning?.(madeAgain(note, later));
  clearNote(place, note);
  return undefined;
}

/** Where dead processes may have left something. */
interface SweptPlace extends Pick<LockPlace, 'env'> {
  readonly stateDir: string | undefined;
  readonly cacheDir: string;
}

/**
 * Removes what dead processes have left half written.
 * @param how `brief`: what a verb on one network has time for, and not what all networks share
 * @param network whose notes are removed, too, if they are over
 * @throws CniError 5
 */
export function sweep({ stateDir, env, cacheDir }: SweptPlace, how: 'brief' | 'all', network?: string): void {
  // Snapshots of killed runs of GC. There is none before the first one, and asking is cheaper than an error that is thrown and caught.
  const snapshots = notesDirs(runDir(env)).gc;
  if (fileExists(snapshots)) sweepUnfinished(snapshots);
  sweepLocks(env);
  if (how === 'brief') return;
  sweepCache(cacheDir);
  if (stateDir === undefined) return;
  sweepUnfinished(stateDir);
  sweepDeadLocks({ stateDir, env });
  if (network !== undefined) sweepNotes({ stateDir, env }, network);
}

/** Removes the note of an attachment if it is over, unless a process works on the attachment. @throws CniError 5 */
function clearNote(place: LockPlace, id: AttachmentId): void {
  // Who takes the lock removes a note that is over.
  const held = tryHold(id, { ...place, purpose: 'repair' });
  if (!('holder' in held)) held.release();
}

/** Removes the notes of a network that are over. Those that cannot be read stay. @throws CniError 5 */
function sweepNotes(place: LockPlace, network: string): void {
  for (const file of noteFiles(place.stateDir, network)) {
    const clear = () => {
      const note = noteIn(place.stateDir, file);
      if (note && !standing(place.stateDir, note)?.isNoted) clearNote(place, note);
    };
    orTell(undefined, clear, [ErrorCode.decodingFailure]);
  }
}

/**
 * Once per boot: notes the attachments of an earlier boot. They are then recovered like any other of which something is unfinished.
 * @param onlyLooking a directory that was never used is left as it is
 * @throws CniError 5
 */
function noteEarlierBoots(
  { stateDir, env }: LockPlace,
  onlyLooking: boolean,
  onWarning: HoldCall['onWarning'],
): void {
  const boot = bootId(env);
  if (boot === '' || seen.get(stateDir) === boot) return;
  const former = join(stateDir, 'attachments');
  if (fileExists(former))
    onWarning?.(
      new CniError(
        ErrorCode.ioFailure,
        `Cannot use "${former}": it has the layout of an earlier build; what it has of settled attachments is not needed, and what is unsettled is deleted by "catena repair" of that build; then remove it`,
      ),
    );
  const stamp = join(stateDir, 'boot');
  if (tryRead(stamp) !== boot) {
    const { attachments, damaged } = listAttachments({ journals: [stateDir] });
    for (const problem of damaged) onWarning?.(problem);
    for (const one of attachments)
      if (!one.isNoted && isOfEarlierBoot(one, env)) noteIfUnnoted(stateDir, one);
    // A verb writes the stamp even if the journal is empty, so the second verb does not read the records again.
    // A damaged entry shows nothing: the usual directory of entries is that of other journals, and runtimes, too.
    const isThere = attachments.length || tryRead(stamp) !== undefined;
    if (isThere || !onlyLooking) {
      // Happens only once per boot, so this also sweeps the temporary files of processes that died here.
      sweepUnfinished(stateDir);
      putFile(stamp, boot, { what: 'boot note' });
    }
  }
  seen.set(stateDir, boot);
}

/** State directories that this process has already searched, and in which boot. */
const seen = new Map<string, string>();
