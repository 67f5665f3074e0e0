// Which attachments on this node still have to be deleted?
import { resolve } from 'node:path';
import type { Conflist } from '../chain/config/conflist.ts';
import { listUses } from '../chain/config/plugin-uses.ts';
import { findConfigOfAdd } from '../chain/records/config-of-add.ts';
import {
  chooseRemembered,
  findCached,
  type RememberedAdd,
  toRemembered,
} from '../chain/records/remembered-add.ts';
import { listAttachments } from '../chain/records/result-cache.ts';
import { cacheDirOf, type Runtime } from '../chain/run/runtime.ts';
import { defined } from '../cni/defined.ts';
import { isObject, memberOf } from '../cni/json.ts';
import { findNetnsIdentity } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { listRecords } from '../journal/store.ts';

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
  const filter = defined({ network });
  const { attachments } = listAttachments(cacheDirOf(runtime), filter);
  const records = runtime.stateDir === undefined ? [] : listRecords(runtime.stateDir, network).records;
  const standing = records.filter(({ phase }) => phase === 'attached');
  const found = new Map<string, { readonly known: RememberedAdd; readonly record?: AttachmentRecord }>();
  for (const cached of attachments) found.set(keyOf(cached), { known: cached });
  for (const record of standing) {
    const within = { ...runtime, cacheDir: record.cacheDir };
    const known = chooseRemembered(record, findCached(record, within)) ?? toRemembered(record);
    found.set(keyOf(record), { known, record });
  }
  return [...found.values()].map(({ known, record }) => {
    const whole = { ...known, netns: known.netns || sandboxOf(known) };
    const list = findConfigOfAdd(known, runtime);
    const types = list ? [...new Set(listUses(list).map(({ type }) => type))] : [];
    return { ...whole, list, types, isGone: isGone(whole), pluginDirs: record?.pluginDirs };
  });
}

/** Whether the executables in a directory may have made it; true if the directories were not recorded. */
export function isMadeIn(dir: string, { pluginDirs }: Pick<HandedAttachment, 'pluginDirs'>): boolean {
  return pluginDirs === undefined || pluginDirs.some(one => resolve(one) === resolve(dir));
}

function keyOf({
  network,
  containerId,
  ifname,
}: Pick<RememberedAdd, 'network' | 'containerId' | 'ifname'>): string {
  return [network, containerId, ifname].join('\n');
}

/** Runtimes built on libcni before 1.1 do not record the namespace, but the result names it. */
function sandboxOf({ ifname, result }: RememberedAdd): string {
  const interfaces = result && memberOf(result, 'interfaces');
  for (const one of Array.isArray(interfaces) ? interfaces : []) {
    const [name, sandbox] = isObject(one) ? [memberOf(one, 'name'), memberOf(one, 'sandbox')] : [];
    if (name === ifname && typeof sandbox === 'string' && sandbox) return sandbox;
  }
  return '';
}

function isGone({ netns }: RememberedAdd): boolean {
  return netns !== '' && findNetnsIdentity(netns) === undefined;
}
