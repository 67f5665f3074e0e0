// How is the delegate's configuration of an ADD kept until its DEL, next to a reference plugin that does the same?
//
// The reference has one file per container, named by its id, so a second attachment of the pod overwrites the first's.
// Ours are named `<id>:<ifname>`, which no id can be, and the container's own name is a hard link to the first of them:
// either plugin finds what the other one kept.
import { linkSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type JsonObject, parseObject } from '../../src/cni/json.ts';
import { putFile } from '../../src/files/put-file.ts';
import { removeFile } from '../../src/files/remove-file.ts';
import { sweepGivenUp } from '../../src/files/unfinished.ts';

/** Who is attached by which interface. */
export interface RecordKey {
  readonly containerId: string;
  readonly ifname: string;
}

/**
 * The configuration that ADD kept; undefined when there is none.
 * @throws CniError 6 for a file that cannot be understood, Error for one that cannot be read
 */
export function findRecord(dataDir: string, key: RecordKey): JsonObject | undefined {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // A container's file with a second name is that of another attachment.
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

/** Keeps a configuration: on disk, whole, before this returns. */
export function writeRecord(dataDir: string, key: RecordKey, conf: JsonObject): void {
  const path = ownPath(dataDir, key);
  const unfinished = unfinishedPath(dataDir, key);
  const shared = sharedPath(dataDir, key);
  const isOfAnother = isLinked(shared) && !isSame(shared, path);
  putFile(path, JSON.stringify(conf), { what: "delegate's configuration", unfinished, sync: true });
  if (isOfAnother) return;
  linkSync(path, unfinished);
  renameSync(unfinished, shared);
  // Renaming a file to another name of itself does nothing.
  rmSync(unfinished, { force: true });
}

/** Forgets a configuration; an absent one is fine. */
export function removeRecord(dataDir: string, key: RecordKey): void {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // Left by an ADD that was killed: a second name would make the file look like another attachment's.
  removeFile(unfinishedPath(dataDir, key));
  // One that has a single name is the reference's, unless ours lies beside it.
  const isOurs = isSame(shared, own) || (statOf(own) === undefined && !isLinked(shared));
  if (isOurs) removeFile(shared);
  removeFile(own);
}

/** Attachments whose configuration is kept under a name of ours. */
export function listRecords(dataDir: string): RecordKey[] {
  return namesIn(dataDir).flatMap(name => {
    const [containerId, ifname, ...more] = name.split(':');
    if (!containerId || !ifname || more.length || isUnfinished(name)) return [];
    return { containerId, ifname };
  });
}

/** Removes records that were begun long ago and that nobody will finish. */
export function sweepRecords(dataDir: string): void {
  sweepGivenUp(dataDir, isUnfinished);
}

function namesIn(dataDir: string): string[] {
  try {
    return readdirSync(dataDir);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw cause;
  }
}

/** Known to DEL without a look at the directory; no container id begins with a dot. */
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
