// How are the values from before tuning kept until DEL?
import { join } from 'node:path';
import * as z from 'zod/mini';
import { defined, tryParse } from '../../src/cni/json.ts';
import { isGivenUp, putFile, removeFile } from '../../src/files/put-file.ts';
import { namesIfThere, readIfThere } from '../../src/files/read-file.ts';
import type { KeptAttachments } from '../../src/plugin/define.ts';
import { isSysctlPath } from './allowlist.ts';
import { DEFAULT_DATA_DIR } from './config.ts';
import type { TuningPlan } from './plan.ts';

/** Values from before the first ADD; only those to be changed. The keys up to `txQLen` are the reference's. */
export const Backup = z.looseObject({
  mac: z.optional(z.string()),
  promisc: z.optional(z.boolean()),
  mtu: z.optional(z.int()),
  allmulti: z.optional(z.boolean()),
  txQLen: z.optional(z.int()),
  /** Ours alone: name of the network, from which GC knows the owner of the file. The reference ignores it. */
  network: z.optional(z.string()),
  /** Ours alone, and absent if no sysctl was set: value by path below /proc/sys. The reference ignores it. */
  sysctl: z.optional(z.record(z.string(), z.string())),
  /** Ours alone: of sysctls that other interfaces of the container had set before, after how many; 0 for all others. */
  order: z.optional(z.record(z.string(), z.int())),
});
export type Backup = z.output<typeof Backup>;

/** The file of one attachment; an empty directory means the default. */
export function backupPathOf(dataDir: string | undefined, containerId: string, ifname: string): string {
  return join(dataDir || DEFAULT_DATA_DIR, `${containerId}_${ifname}.json`);
}

/**
 * The backup in the file; undefined if the file is missing or invalid.
 * @throws CniError 5 when it cannot be read: its content may still be needed
 */
export function findBackup(path: string): Backup | undefined {
  const text = readIfThere(path, 'backup', ['ENOENT', 'ENOTDIR', 'EISDIR']);
  if (text === undefined) return undefined;
  const parsed = z.safeParse(Backup, tryParse(text));
  return parsed.success ? withinNet(parsed.data) : undefined;
}

/** Keeps only sysctls as ADD records them. DEL runs as root and must not write elsewhere if the file has been tampered with. */
function withinNet({ sysctl, ...backup }: Backup): Backup {
  if (sysctl === undefined) return backup;
  const own = Object.entries(sysctl).filter(([path]) => isSysctlPath(path));
  return own.length ? { ...backup, sysctl: Object.fromEntries(own) } : backup;
}

/** Writes the file atomically; what the reference knows is byte for byte as it would write it. */
export function writeBackup(path: string, backup: Backup): void {
  putFile(path, renderBackup(backup), { what: 'backup', unfinished: unfinishedOf(path) });
}

/**
 * Files of the network's attachments that GC does not keep, in a directory that may not exist. The owner of files without a
 * network is unknown: the reference made them, or a release of ours before that key.
 */
export function findStaleBackups(
  dataDir: string | undefined,
  network: string,
  kept: Pick<KeptAttachments, 'has'>,
): string[] {
  const directory = dataDir || DEFAULT_DATA_DIR;
  const paths = namesIfThere(directory, 'backups').flatMap(name => {
    // A temporary file of an unfinished ADD counts as that attachment's.
    const [, finished] = /^(.+_.+)\.json(?:\.new)?$/.exec(name) ?? [];
    return finished === undefined || ownersIn(finished).some(kept.has) ? [] : [join(directory, name)];
  });
  return paths.filter(path => {
    const backup = findBackup(path);
    // A truncated file that will not be completed belongs to no known network.
    return backup ? backup.network === network : !path.endsWith('.json') && isGivenUp(path);
  });
}

/**
 * Possible owners of a backup according to its name, which does not show where the container id ends: both parts may contain a
 * "_".
 */
function ownersIn(name: string): { containerId: string; ifname: string }[] {
  return Array.from(name.matchAll(/(?<=.)_(?=.)/g), ({ index }) => ({
    containerId: name.slice(0, index),
    ifname: name.slice(index + 1),
  }));
}

/** Removes the file and the temporary file of an ADD that was killed; missing ones are ignored. */
export function removeBackup(path: string): void {
  removeFile(unfinishedOf(path), 'backup');
  removeFile(path, 'backup');
}

/** The older values win, except for the network: a repeated ADD finds the values that the first one set, not the original ones. */
export function mergeBackups(older: Backup, newer: Backup): Backup {
  const sysctls = { ...newer.sysctl, ...older.sysctl };
  const orders = { ...newer.order, ...older.order };
  const both = { ...newer, ...older };
  const { mac, promisc, mtu, allmulti, txQLen, network: _n, sysctl: _s, order: _o, ...unknown } = both;
  const network = newer.network ?? older.network;
  return {
    ...defined({ mac, promisc, mtu, allmulti, txQLen, network }),
    ...unknown,
    ...(Object.keys(sysctls).length ? { sysctl: sysctls } : {}),
    ...(Object.keys(orders).length ? { order: orders } : {}),
  };
}

/**
 * The part of a backup whose values are still set, and the part to be restored because a change no longer sets them.
 * @param past what the plugin set before: the rest is that of another one of its type in the chain; undefined if that is not known
 */
export function splitBackup(
  { network, sysctl = {}, order = {}, ...backup }: Backup,
  set: Backup,
  past: TuningPlan | undefined,
): { readonly needed: Backup; readonly obsolete: Backup } {
  const pick = <T extends object>(from: T, isWanted: (key: string) => boolean) =>
    Object.fromEntries(Object.entries(from).filter(([key]) => isWanted(key))) as Partial<T>;
  const isSet = (key: string) => !ATTRIBUTES.has(key) || key in set || (past && !(key in past.link));
  const isSysctlSet = (path: string) =>
    Object.hasOwn(set.sysctl ?? {}, path) || past?.sysctls.every(({ paths }) => !paths.includes(path));
  const half = (isNeeded: boolean) => ({
    ...pick(backup, key => Boolean(isSet(key)) === isNeeded),
    sysctl: pick(sysctl, path => Boolean(isSysctlSet(path)) === isNeeded),
    order: pick(order, path => Boolean(isSysctlSet(path)) === isNeeded),
  });
  return { needed: { ...half(true), ...defined({ network }) }, obsolete: half(false) } as {
    needed: Backup;
    obsolete: Backup;
  };
}

export function isEmpty({ network: _, order: __, sysctl = {}, ...values }: Backup): boolean {
  return Object.keys(values).length + Object.keys(sysctl).length === 0;
}

// A namespace has most sysctls once for all interfaces, and several networks of a container may set the same. Each keeps the value that it
// found, which is that of the one before, so what leaves first must not restore its value: it passes it to the next one.

export interface Neighbour {
  readonly path: string;
  readonly backup: Backup;
}

/**
 * The backup of values that were found just now, with their places among those of other interfaces.
 * @param older what an earlier ADD or change of the same interface has found keeps its place
 */
export function asLast(found: Backup, older: Backup, neighbours: readonly Neighbour[]): Backup {
  const order = Object.keys(found.sysctl ?? {}).flatMap(path => {
    if (placeOf(older, path) !== undefined) return [];
    const places = neighbours.flatMap(one => placeOf(one.backup, path) ?? []);
    return places.length ? [[path, 1 + Math.max(...places)] as const] : [];
  });
  return order.length ? { ...found, order: Object.fromEntries(order) } : found;
}

/**
 * Passes each value of a backup to the interface that has set the sysctl next.
 * @returns the backup with the values that none has set since, which are to be restored
 * @throws CniError 5
 */
export function passOn(backup: Backup, neighbours: readonly Neighbour[]): Backup {
  const { sysctl = {}, ...rest } = backup;
  const latest = [...neighbours];
  const left = Object.entries(sysctl).filter(([path, value]) => {
    const own = placeOf(backup, path) ?? 0;
    const later = latest.filter(one => (placeOf(one.backup, path) ?? 0) > own);
    const [next] = later.sort((a, b) => (placeOf(a.backup, path) ?? 0) - (placeOf(b.backup, path) ?? 0));
    if (next === undefined) return true;
    const changed = { ...next.backup, sysctl: { ...next.backup.sysctl, [path]: value } };
    writeBackup(next.path, changed);
    latest[latest.indexOf(next)] = { ...next, backup: changed };
    return false;
  });
  return left.length ? { ...rest, sysctl: Object.fromEntries(left) } : rest;
}

function placeOf({ sysctl = {}, order = {} }: Backup, path: string): number | undefined {
  return Object.hasOwn(sysctl, path) ? (order[path] ?? 0) : undefined;
}

const ATTRIBUTES: ReadonlySet<string> = new Set(['mac', 'promisc', 'mtu', 'allmulti', 'txQLen']);

/** JSON with an indent of one space; keys in the order of the schema. */
export function renderBackup(backup: Backup): string {
  return JSON.stringify(mergeBackups({}, backup), null, 1);
}

/** A fixed name, so that DEL need not list the directory, which holds the files of all containers. */
function unfinishedOf(path: string): string {
  return `${path}.new`;
}
