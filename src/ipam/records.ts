// What do libcni's records say of a container's namespace?

import { join } from 'node:path';
import { cniCacheDir } from '../cni/directories.ts';
import { isObject, type JsonObject, memberOf, tryParse } from '../cni/json.ts';
import { namesIfThere, readIfThere, UNREADABLE } from '../files/read-file.ts';
import { closeNetns, findNetns } from '../sys/netns.ts';

/**
 * The namespace that exists, of those that records of the container name, on whichever network: its address may be where nothing shows
 * it, in a virtual machine, or on a device that a program drives itself. Multus and others keep their records in a directory of their own.
 */
export function findOnRecord(
  { containerId, ifname }: { readonly containerId: string; readonly ifname?: string | undefined },
  root = cniCacheDir(),
): string | undefined {
  const paths = recordsOf(name => name.includes(`-${containerId}-`), root).flatMap(
    record => netnsIn(record, ifname) ?? [],
  );
  return paths.find(exists);
}

/** Records of libcni by the names of their files, of whichever program. */
export function recordsOf(isMeant: (name: string) => boolean, root = cniCacheDir()): JsonObject[] {
  const dirs = ['', ...recordsIn(root)].map(name => join(root, name, 'results'));
  return dirs.flatMap(dir =>
    recordsIn(dir)
      .filter(isMeant)
      .map(name => readRecord(join(dir, name))),
  );
}

/** Whether a path leads to a network namespace. */
export function exists(path: string): boolean {
  const netns = findNetns(path);
  if (netns) closeNetns(netns);
  return netns !== undefined;
}

function recordsIn(dir: string): string[] {
  return namesIfThere(dir, RECORD, UNREADABLE);
}

const RECORD = 'cached results';

/**
 * A record of libcni; empty if it is none.
 * @throws CniError 5 when it cannot be read for want of descriptors or memory
 */
function readRecord(file: string): JsonObject {
  const record = tryParse(readIfThere(file, RECORD, UNREADABLE) ?? '');
  return isObject(record) ? record : {};
}

export function netnsIn(record: JsonObject, ifname: string | undefined): string | undefined {
  const result = memberOf(record, 'result');
  const interfaces = isObject(result) ? memberOf(result, 'interfaces') : undefined;
  const own = Array.isArray(interfaces)
    ? interfaces.find(one => isObject(one) && memberOf(one, 'name') === ifname)
    : undefined;
  const netns = memberOf(record, 'netns') ?? (isObject(own) ? memberOf(own, 'sandbox') : undefined);
  return typeof netns === 'string' ? netns : undefined;
}
