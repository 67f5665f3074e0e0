// Which executables does the second twin run in place of the first one's?
import { statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { ensureDirSync, ensureSymlinkSync } from 'fs-extra/esm';
import type { Conflist } from '../chain/conflist.ts';
import type { Exec } from '../chain/exec.ts';
import { startProcess } from '../chain/exec-plugin.ts';
import { findPlugin } from '../chain/find-plugin.ts';
import { listUses } from '../chain/link-types.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { toText } from './text.ts';

/** What the second twin runs instead. */
export interface Swap {
  /** A directory of executables, or one executable. */
  readonly target: string;
  /** Types that are found there. */
  readonly types: readonly string[];
  /** The only entry that is meant, where several have the type. */
  readonly index?: number;
}

/** Where the lab shows the executables that were swapped, alone. */
const SWAP_DIR = '/run/catena-compare';

/**
 * Reads what a user said: a directory swaps all that it has, an executable the link of its name, and `--link` only that
 * one.
 * @param link a type, or the place of an entry in the list
 * @throws Error when there is no such link or executable
 */
export function readSwap(list: Conflist, given: string, link: string | undefined): Swap {
  const target = resolve(given);
  const stat = statSync(target, { throwIfNoEntry: false });
  if (stat === undefined) throw new Error(`Cannot compare with "${given}": it does not exist`);
  const known = typesOf(list);
  const [type, index] = link === undefined ? [undefined, undefined] : readLink(list, known, link);
  if (!stat.isDirectory()) {
    const own = type ?? basename(target);
    if (known.includes(own)) return { target, types: [own], ...(index === undefined ? {} : { index }) };
    throw new Error(
      `Cannot compare with "${given}": the list has no link "${own}", but ${known.join(', ')}; say which with --link`,
    );
  }
  if (type !== undefined) {
    findPlugin(type, [target]);
    return { target, types: [type], ...(index === undefined ? {} : { index }) };
  }
  const there = known.filter(one => statSync(join(target, one), { throwIfNoEntry: false })?.isFile());
  if (there.length) return { target, types: there };
  throw new Error(`Cannot compare with "${given}": it has none of ${known.join(', ')}`);
}

/**
 * The type that a user means by a type, or by the place of an entry.
 * @throws Error when the list has no such link
 */
export function findType(list: Conflist, link: string): string {
  return readLink(list, typesOf(list), link)[0];
}

/** Directories that must be visible in the lab. */
export function homesOf({ target }: Swap): string[] {
  return statSync(target).isDirectory() ? [target] : [dirname(target)];
}

/** Lays the executables out in the lab, in a directory of their own, and says how the second twin runs links. */
export function laySwap(
  { target, types, index }: Swap,
  list: Conflist,
  pluginDirs: readonly string[],
): { pluginDirs: readonly string[]; exec?: Exec; shown: string } {
  ensureDirSync(SWAP_DIR);
  const isDir = statSync(target).isDirectory();
  for (const type of types) ensureSymlinkSync(isDir ? join(target, type) : target, join(SWAP_DIR, type));
  const place = { pluginDirs: [SWAP_DIR, ...pluginDirs], shown: SWAP_DIR };
  if (index === undefined) return place;
  const entry = list.plugins[index]?.conf ?? {};
  return { ...place, pluginDirs, exec: execFor(entry, join(SWAP_DIR, types[0] ?? '')) };
}

/** Other entries have the same type: theirs is told from this one's by the configuration that it gets. */
function execFor(entry: JsonObject, executable: string): Exec {
  return ({ request, path, ...call }) => {
    const sent: unknown = JSON.parse(request);
    const own = isObject(sent) && Object.keys(entry).every(key => isSame(entry[key], sent[key], key));
    return startProcess({ ...call, path: own ? executable : path }).send(request);
  };
}

/** The runner puts the list's name and version, and what the runtime says, in place of an entry's. */
function isSame(configured: unknown, sent: unknown, key: string): boolean {
  return (
    ['name', 'cniVersion', 'runtimeConfig', 'prevResult'].includes(key) || toText(configured) === toText(sent)
  );
}

/** Types of links, and of what they call. */
function typesOf(list: Conflist): string[] {
  return [...new Set(listUses(list).map(({ type }) => type))];
}

function readLink(list: Conflist, known: readonly string[], link: string): [string, number | undefined] {
  if (known.includes(link)) return [link, undefined];
  const entry = /^\d+$/.test(link) ? list.plugins[Number(link)] : undefined;
  if (entry === undefined) {
    throw new Error(
      `Cannot find link "${link}": there are ${known.join(', ')}, and places 0 to ${list.plugins.length - 1}`,
    );
  }
  const several = list.plugins.filter(({ type }) => type === entry.type).length > 1;
  return [entry.type, several ? Number(link) : undefined];
}
