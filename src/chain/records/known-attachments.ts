// Which attachments does this node have, as its journals and libcni's cache say together?
import { keyOf } from '../../cni/attachment.ts';
import type { CniError } from '../../cni/errors.ts';
import { cacheFileOf, listAttachments } from '../../journal/entries.ts';
import type { CachedAttachment } from '../../journal/entry.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { listRecords } from '../../journal/store.ts';
import { chooseRemembered, findCached, type RememberedAdd, toRemembered } from './remembered-add.ts';

/** An attachment, with all that files say about it. */
export interface KnownAttachment {
  /** What its ADD was called with, and its result. */
  readonly known: RememberedAdd;
  /** Its record, and the journal that has it; undefined if only libcni's cache has it. */
  readonly record: AttachmentRecord | undefined;
  readonly stateDir: string | undefined;
  /** What libcni's cache has of it: that of the caller, or the one that its record names. */
  readonly cached: CachedAttachment | undefined;
  readonly cacheDir: string;
}

/** What is in the files of a node. */
export interface KnownList {
  /** Those that only the cache has, then those of each journal in turn: two journals may have one of the same name. */
  readonly attachments: readonly KnownAttachment[];
  /** Files that cannot be used, with the reason. */
  readonly damaged: readonly CniError[];
}

/**
 * Lists attachments of all networks, or of one. An unusable file does not hide the others.
 * @param place.journals state directories
 * @throws CniError 5 when a directory cannot be read; a missing one is empty
 */
export function listKnown(
  { cacheDir, journals }: { readonly cacheDir: string; readonly journals: readonly string[] },
  network?: string,
): KnownList {
  const cache = listAttachments(cacheDir, network === undefined ? {} : { network });
  const lists = journals.map(stateDir => ({ stateDir, ...listRecords(stateDir, network) }));
  const damaged = [...cache.damaged, ...lists.flatMap(list => list.damaged)];
  const onWarning = (problem: CniError) => void damaged.push(problem);
  const attachments = joinKnown(cacheDir, cache.attachments, lists, record =>
    findCached(record, { pluginDirs: [], cacheDir: record.cacheDir, onWarning }),
  );
  return { attachments, damaged };
}

/**
 * What a cache and journals say together, from what was read of them.
 * @param findElsewhere what another cache, which its record names, has of an attachment
 */
export function joinKnown(
  ownDir: string,
  results: readonly CachedAttachment[],
  lists: readonly { readonly stateDir: string; readonly records: readonly AttachmentRecord[] }[],
  findElsewhere: (record: AttachmentRecord) => CachedAttachment | undefined,
): KnownAttachment[] {
  const found = new Map(results.map(one => [keyOf(one), one]));
  const onRecord = new Set<string>();
  const recorded = lists.flatMap(({ stateDir, records }) =>
    records.filter(isOurs).map((record): KnownAttachment => {
      const { cacheDir } = record;
      const [key, isHere] = [keyOf(record), cacheDir === ownDir];
      if (isHere) onRecord.add(key);
      const cached = isHere ? found.get(key) : findElsewhere(record);
      const known = chooseRemembered(record, cached) ?? toRemembered(record);
      return { known, record, stateDir, cached, cacheDir };
    }),
  );
  const others = results.filter(one => !onRecord.has(keyOf(one)));
  const none = { record: undefined, stateDir: undefined, cacheDir: ownDir };
  return [...others.map(cached => ({ known: cached, cached, ...none })), ...recorded];
}

/** While a change of an attachment by another runtime is unfinished, that has a record, too. */
function isOurs({ foreign, phase }: AttachmentRecord): boolean {
  return !foreign || phase !== 'attached';
}

/** Undefined without one, and for one whose content names an attachment that no file can be of. */
export function findCacheFile({
  cached,
  cacheDir,
}: Pick<KnownAttachment, 'cached' | 'cacheDir'>): string | undefined {
  try {
    return cached && cacheFileOf(cacheDir, cached);
  } catch {
    return undefined;
  }
}
