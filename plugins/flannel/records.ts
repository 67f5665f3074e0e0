// How is the delegate's configuration of an ADD kept until its DEL, next to a reference plugin that does the same?
//
// The reference has one file per container, named by its id, so a second attachment of the pod overwrites the first's.
// Ours are named `<id>:<ifname>`, which no id can be, and the container's own name is a hard link to the first of them:
// either plugin finds what the other one kept.
import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { type JsonObject, parseObject } from '../../src/cni/json.ts';

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
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const path = ownPath(dataDir, key);
  const unfinished = `${path}.new`;
  rmSync(unfinished, { force: true });
  const fd = openSync(unfinished, 'wx', 0o600);
  try {
    writeSync(fd, JSON.stringify(conf));
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  const shared = sharedPath(dataDir, key);
  const isOfAnother = isLinked(shared) && !isSame(shared, path);
  renameSync(unfinished, path);
  if (isOfAnother) return;
  linkSync(path, unfinished);
  renameSync(unfinished, shared);
  // Renaming a file to another name of itself does nothing.
  rmSync(unfinished, { force: true });
}

/** Forgets a configuration; an absent one is fine. */
export function removeRecord(dataDir: string, key: RecordKey): void {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // One that has a single name is the reference's, unless ours lies beside it.
  const isOurs = isSame(shared, own) || (statOf(own) === undefined && !isLinked(shared));
  if (isOurs) rmSync(shared, { force: true });
  rmSync(own, { force: true });
}

/** Attachments whose configuration is kept under a name of ours. */
export function listRecords(dataDir: string): RecordKey[] {
  let names: string[];
  try {
    names = readdirSync(dataDir);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw cause;
  }
  return names.flatMap(name => {
    const [containerId, ifname, ...more] = name.split(':');
    if (!containerId || !ifname || more.length || ifname.endsWith('.new')) return [];
    return { containerId, ifname };
  });
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
