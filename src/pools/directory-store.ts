// How are pools and blocks stored on a host without a cluster?
import { join } from 'node:path';
import { isObject, tryParse } from '../cni/json.ts';
import { putFile, putNewFile, removeFile, unfinishedName } from '../files/put-file.ts';
import { fileFailure, namesIfThere, readIfThere } from '../files/read-file.ts';
import { withFlock } from '../sys/flock.ts';
import type { ObjectKind, ObjectStore, StoredObject } from './held.ts';

/** Objects as files, one each: `<dir>/blocks/<name>`. A hard link creates one, which fails if the name exists. */
export function directoryStore(dir: string): ObjectStore {
  const pathOf = (kind: ObjectKind, name: string): string => join(dir, kind, name);
  const find = (kind: ObjectKind, name: string): StoredObject | undefined => readObject(pathOf(kind, name));
  const locked = <T>(work: () => T): T =>
    withFlock(join(dir, 'lock'), work, { mode: 0o600, directoryMode: 0o700 });
  return {
    find: async (kind, name) => find(kind, name),
    async *pages(kind, labels) {
      const all = namesIfThere(join(dir, kind), kind).flatMap(name => find(kind, name) ?? []);
      yield all.filter(object =>
        Object.entries(labels).every(([key, value]) => object.labels[key] === value),
      );
    },
    async create(kind, object) {
      const stored = { annotations: {}, ...object, uid: crypto.randomUUID(), version: '1' };
      return createFile(dir, pathOf(kind, object.name), stored) ? stored : undefined;
    },
    replace: async (kind, object) =>
      locked(() => {
        const { uid, version } = find(kind, object.name) ?? {};
        if (uid !== object.uid || version !== object.version) return undefined;
        const next = { ...object, version: String(Number(version) + 1) };
        putFile(pathOf(kind, object.name), JSON.stringify(next), {
          what: kind,
          unfinished: join(dir, unfinishedName()),
          sync: true,
        });
        return next;
      }),
    remove: async (kind, { name, uid, version }) =>
      locked(() => {
        const found = find(kind, name);
        if (found?.uid !== uid || (version !== undefined && found.version !== version)) return false;
        removeFile(pathOf(kind, name), kind);
        return true;
      }),
    hasNode: async () => undefined,
    revision: async () => undefined,
    hasClaim: async () => undefined,
  };
}

/** @returns false if there is a file of that name */
function createFile(dir: string, path: string, object: StoredObject): boolean {
  try {
    // Not written among the objects: what a crash left there would be taken for one. An empty one would stop all networks of the store.
    putNewFile(path, JSON.stringify(object), { unfinished: join(dir, unfinishedName()), sync: true });
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw fileFailure('write object', path, cause);
  }
}

/** @throws Error for a file that is not an object of ours: its name is taken, but by what is unknown */
function readObject(path: string): StoredObject | undefined {
  const text = readIfThere(path, 'object');
  if (text === undefined) return undefined;
  const value = tryParse(text);
  if (isObject(value) && typeof value.uid === 'string' && isObject(value.spec))
    return value as unknown as StoredObject;
  throw new Error(
    `Cannot read object "${path}": it is not a JSON object with "uid" and "spec"; remove the file`,
  );
}
