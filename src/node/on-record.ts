// Which attachments do the records of this node name, and what do they say about each?
import { findReason } from '../chain/records/recover.ts';
import { chooseRemembered, type RememberedAdd, toRemembered } from '../chain/records/remembered-add.ts';
import { cacheFileOf, listAttachments } from '../chain/records/result-cache.ts';
import { type ChainRuntime, cacheDirOf } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { runnerJournals } from '../cni/directories.ts';
import { listPods } from '../delegate/record.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { listRecords } from '../journal/store.ts';

/** An attachment with everything that records say about it. */
export interface RecordedAttachment {
  readonly known: RememberedAdd;
  /** Undefined if only libcni's cache has it. */
  readonly record: AttachmentRecord | undefined;
  /** Its cached result; undefined if only the journal has it. */
  readonly cacheFile: string | undefined;
  /** The network through which a delegate runner attached it. */
  readonly through: string | undefined;
  /** Why it is not settled. */
  readonly unsettled: string | undefined;
}

/** What the records of a node hold. */
export interface OnRecord {
  readonly attachments: readonly RecordedAttachment[];
  /** Messages about files that cannot be read. */
  readonly damaged: readonly string[];
}

/**
 * Reads libcni's cache, our journal and that of the delegate runner, each once.
 * @throws CniError 5 if one of them cannot be listed
 */
export function readRecords(runtime: ChainRuntime): OnRecord {
  const { stateDir = '', env = process.env } = runtime;
  const { pods, delegates } = runnerJournals(stateDir);
  const journals = [stateDir, delegates].map(dir => listRecords(dir));
  const records = journals.flatMap(journal => journal.records);
  const podList = listPods(pods);
  const cacheDirs = new Set([cacheDirOf(runtime), ...records.map(({ cacheDir }) => cacheDir)]);
  const caches = [...cacheDirs].map(dir => ({ dir, ...listAttachments(dir) }));
  const found = new Map<string, RecordedAttachment>();
  for (const { dir, attachments } of caches) {
    for (const known of attachments) {
      const cacheFile = cacheFileOf(dir, known);
      found.set(keyOf(known), {
        known,
        cacheFile,
        record: undefined,
        through: undefined,
        unsettled: undefined,
      });
    }
  }
  for (const record of records) {
    const cached = found.get(keyOf(record));
    const known = chooseRemembered(record, cached?.known) ?? toRemembered(record);
    const unsettled = findReason(record, env);
    found.set(keyOf(record), { known, record, cacheFile: cached?.cacheFile, through: undefined, unsettled });
  }
  for (const { record: pod, networks } of podList.pods) {
    for (const { network, ifname } of networks) {
      const key = keyOf({ network, ifname, containerId: pod.containerId });
      const one = found.get(key);
      if (one !== undefined) found.set(key, { ...one, through: pod.network });
    }
  }
  const damaged = [...caches, ...journals, podList].flatMap(source => source.damaged);
  return { attachments: [...found.values()], damaged: damaged.map(({ message }) => message) };
}

function keyOf({ network, containerId, ifname }: AttachmentId): string {
  return [network, containerId, ifname].join('\n');
}
