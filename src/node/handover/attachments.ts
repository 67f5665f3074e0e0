// Which attachments on this node still have to be deleted?

import { resolve } from 'node:path';
import { listKnown, pastOf, type RememberedAdd } from '../../attachments/store.ts';
import type { Conflist } from '../../chain/config/conflist.ts';
import { listUses } from '../../chain/config/plugin-uses.ts';
import { isNamespaceGone } from '../../chain/records/gone.ts';
import { findConfigOfAdd } from '../../chain/records/known-add.ts';
import { cacheDirOf, type Runtime } from '../../chain/run/runtime.ts';

/** An attachment as its ADD left it. */
export interface HandedAttachment extends RememberedAdd {
  /** Its configuration; undefined if the recorded one cannot be used. */
  readonly list: Conflist | undefined;
  /** Names of all executables that its plugins call. */
  readonly types: readonly string[];
  /** Its namespace is gone, and its devices with it: DEL only has leases and rules to remove. */
  readonly isGone: boolean;
  /** Directories in which its plugins were found by ADD, if they were recorded. */
  readonly pluginDirs: readonly string[] | undefined;
}

/**
 * The attachments in libcni's cache and in the journal, whichever runtime made them. It includes the delegate runner's own
 * attachments, but not those of its delegates, which only the runner can delete.
 * @param network every network by default
 * @throws CniError 5 if cache or journal cannot be listed
 */
export function listAttached(network: string | undefined, runtime: Runtime): HandedAttachment[] {
  const journals = runtime.stateDir === undefined ? [] : [runtime.stateDir];
  const { attachments } = listKnown({ cacheDir: cacheDirOf(runtime), journals }, network);
  return attachments.flatMap(({ known, record, cached }) => {
    // What is to be undone is on record, and what another runtime has made under the same name is not.
    const stands = record === undefined || pastOf(record, runtime.env).stands;
    const one = stands ? known : cached;
    if (one === undefined) return [];
    const list = findConfigOfAdd(one, runtime);
    const types = list ? [...new Set(listUses(list).map(({ type }) => type))] : [];
    const own = stands ? record : undefined;
    const isGone = isNamespaceGone({ known: one, record: own });
    return { ...one, list, types, isGone, pluginDirs: own?.pluginDirs };
  });
}

/** Whether the executables in a directory may have made it; true if the directories were not recorded. */
export function isMadeIn(dir: string, { pluginDirs }: Pick<HandedAttachment, 'pluginDirs'>): boolean {
  return pluginDirs === undefined || pluginDirs.some(one => resolve(one) === resolve(dir));
}

/** Runners keep their attachments in records of their own, which no other executable reads. */
const RUNNERS = ['catena', 'multus'];

/**
 * Why other executables cannot delete the attachment at all; undefined if they may be able to.
 * @param executables the other executables, by plugin name
 * @param place name of their location, for the message
 */
export function findMissing(
  { types }: Pick<HandedAttachment, 'types'>,
  executables: ReadonlyMap<string, string>,
  place: string,
): string | undefined {
  const missing = types.filter(type => !executables.has(type));
  const runner = missing.find(type => RUNNERS.includes(type));
  if (runner !== undefined) {
    return `"${runner}" attached its networks and only it can detach them: delete the container first`;
  }
  if (!missing.length) return undefined;
  return `there is no ${missing.map(type => `"${type}"`).join(' and no ')} in ${place} to delete it`;
}
