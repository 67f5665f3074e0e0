// Which executables does the second twin run instead of the first one's?
import { statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ensureDirSync, ensureSymlinkSync } from 'fs-extra/esm';
import { type Conflist, listUses } from '../../chain/config/conflist.ts';
import { findPlugin } from '../../chain/config/find-plugin.ts';
import type { Exec } from '../../chain/run/segment.ts';
import { defined, isObject, type JsonObject } from '../../cni/json.ts';
import { absolutePath } from '../../files/read-file.ts';
import { execInstead } from '../play.ts';
import { toText } from './scene.ts';

/** The executables that the second twin runs instead. */
interface Swap {
  /** A directory of executables, or one executable. */
  readonly target: string;
  /** Plugin types found there. */
  readonly types: readonly string[];
  /** The only entry to swap, when several have the type. */
  readonly index?: number;
}

/** The directory in the lab that contains only the swapped executables. */
const SWAP_DIR = '/run/catena-compare';

/**
 * Interprets the user's choice: a directory swaps every plugin that it contains, an executable the plugin of its name, and
 * `--link` only that one.
 * @param choice a type, or the index of an entry in the conflist
 * @throws Error when there is no such plugin or executable
 */
export function readSwap(list: Conflist, given: string, choice: string | undefined): Swap {
  const target = absolutePath(given);
  const stat = statSync(target, { throwIfNoEntry: false });
  if (stat === undefined) throw new Error(`Cannot compare with "${given}": it does not exist`);
  const known = typesOf(list);
  const [type, index] = choice === undefined ? [undefined, undefined] : readChoice(list, known, choice);
  if (!stat.isDirectory()) {
    const own = type ?? basename(target);
    if (known.includes(own)) return { target, types: [own], ...defined({ index }) };
    throw new Error(
      `Cannot compare with "${given}": the list has no plugin "${own}", but ${known.join(', ')}; choose one with --link`,
    );
  }
  if (type !== undefined) {
    findPlugin(type, [target]);
    return { target, types: [type], ...defined({ index }) };
  }
  const there = known.filter(one => statSync(join(target, one), { throwIfNoEntry: false })?.isFile());
  if (there.length) return { target, types: there };
  throw new Error(`Cannot compare with "${given}": it has none of ${known.join(', ')}`);
}

/**
 * The type that a user specified, directly or by the index of an entry.
 * @throws Error when the conflist has no such plugin
 */
export function findType(list: Conflist, choice: string): string {
  return readChoice(list, typesOf(list), choice)[0];
}

/** Directories that must be visible in the lab. */
export function homesOf({ target }: Swap): string[] {
  return statSync(target).isDirectory() ? [target] : [dirname(target)];
}

/** Links the executables into a directory of their own in the lab, and returns how the second twin runs plugins. */
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

/** When other entries have the same type, a request is matched to this entry by its configuration. */
function execFor(entry: JsonObject, executable: string): Exec {
  return execInstead((request, found) => {
    const sent: unknown = JSON.parse(request);
    const own = isObject(sent) && Object.keys(entry).every(key => isSame(entry[key], sent[key], key));
    return own ? executable : found;
  });
}

/** The runner overrides an entry's keys with the conflist's name and version and the runtime's arguments. */
function isSame(configured: unknown, sent: unknown, key: string): boolean {
  return (
    ['name', 'cniVersion', 'runtimeConfig', 'prevResult'].includes(key) || toText(configured) === toText(sent)
  );
}

/** Types of plugins, and of the plugins that they call. */
function typesOf(list: Conflist): string[] {
  return [...new Set(listUses(list).map(({ type }) => type))];
}

function readChoice(list: Conflist, known: readonly string[], choice: string): [string, number | undefined] {
  if (known.includes(choice)) return [choice, undefined];
  const entry = /^\d+$/.test(choice) ? list.plugins[Number(choice)] : undefined;
  if (entry === undefined) {
    throw new Error(
      `Cannot use --link "${choice}": the list has ${known.join(', ')}, and indexes 0 to ${list.plugins.length - 1}`,
    );
  }
  const several = list.plugins.filter(({ type }) => type === entry.type).length > 1;
  return [entry.type, several ? Number(choice) : undefined];
}
