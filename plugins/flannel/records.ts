// How is the delegate's configuration kept from ADD until DEL, compatibly with the reference plugin's files?
// The reference has one file per container, named after its id, so a second attachment of the pod overwrites the first one's.
// Ours are named `<id>:<ifname>`, which cannot be a container id, and the container's own name is a hard link to the first of
// them: each plugin finds the other's files.
import { linkSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type JsonObject, parseObject } from '../../src/cni/json.ts';
import { putFile, removeFile, sweepGivenUp } from '../../src/files/put-file.ts';
import { namesIfThere } from '../../src/files/read-file.ts';

/** Identifies an attachment: container and interface. */
export interface RecordKey {
  readonly containerId: string;
  readonly ifname: string;
}

/**
 * The configuration that ADD stored; undefined if there is none.
 * @throws CniError 6 for a file that cannot be parsed, Error for one that cannot be read
 */
export function findRecord(dataDir: string, key: RecordKey): JsonObject | undefined {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // A container's file with a second name belongs to another attachment.
  for (const path of [own, ...(isLinked(shared) ? [] : [shared])]) {
    let text: string;
    try {
      text = readFileSync(path, 'utf8');
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') continue;
      throw new Error(`Cannot read "${path}": ${(cause as Error).message}`, { cause });
    }
    return parseObject(text, `delegate's configuration in "${path}"`);
  }
  return undefined;
}

/** Stores a configuration, complete and synced to disk before this returns. */
export function writeRecord(dataDir: string, key: RecordKey, conf: JsonObject): void {
  const path = ownPath(dataDir, key);
  const unfinished = unfinishedPath(dataDir, key);
  const shared = sharedPath(dataDir, key);
  const isOfAnother = isLinked(shared) && !isSame(shared, path);
  putFile(path, JSON.stringify(conf), { what: "delegate's configuration", unfinished, sync: true });
  if (isOfAnother) return;
  linkSync(path, unfinished);
  renameSync(unfinished, shared);
  // rename(2) does nothing if both names are links to the same file.
  rmSync(unfinished, { force: true });
}

/** Deletes a configuration; a missing one is ignored. */
export function removeRecord(dataDir: string, key: RecordKey): void {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // Left by an ADD that was killed: a second name would make the file look like that of another attachment.
  removeFile(unfinishedPath(dataDir, key));
  // A file with a single name was written by the reference, unless ours exists beside it.
  const isOurs = isSame(shared, own) || (statOf(own) === undefined && !isLinked(shared));
  if (isOurs) removeFile(shared);
  removeFile(own);
}

/** Attachments whose configuration is stored under a name of ours. */
export function listRecords(dataDir: string): RecordKey[] {
  return namesIfThere(dataDir, 'configurations').flatMap(name => {
    const [containerId, ifname, ...more] = name.split(':');
    if (!containerId || !ifname || more.length || isUnfinished(name)) return [];
    return { containerId, ifname };
  });
}

/** Removes temporary files that were begun long ago and will not be completed. */
export function sweepRecords(dataDir: string): void {
  sweepGivenUp(dataDir, isUnfinished);
}

/** A fixed name, so that DEL need not list the directory; no container id begins with a dot. */
function unfinishedPath(dataDir: string, { containerId, ifname }: RecordKey): string {
  return join(dataDir, `.${containerId}:${ifname}`);
}

function isUnfinished(name: string): boolean {
  return name.startsWith('.') && name.includes(':');
}

function ownPath(dataDir: string, { containerId, ifname }: RecordKey): string {
  return join(dataDir, `${containerId}:${ifname}`);
}

function sharedPath(dataDir: string, { containerId }: RecordKey): string {
  return join(dataDir, containerId);
}

function statOf(path: string) {
  return statSync(path, { throwIfNoEntry: false });
}

function isLinked(path: string): boolean {
  return (statOf(path)?.nlink ?? 0) > 1;
}

function isSame(a: string, b: string): boolean {
  const [one, other] = [statOf(a), statOf(b)];
  return one !== undefined && other !== undefined && one.dev === other.dev && one.ino === other.ino;
}
