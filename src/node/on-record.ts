// Which attachments do the records of this node name, and what do they say about each?
import { type KnownAttachment, listKnown } from '../chain/records/known-attachments.ts';
import { findReason } from '../chain/records/recover.ts';
import { type ChainRuntime, cacheDirOf } from '../chain/run/runtime.ts';
import { keyOf } from '../cni/attachment.ts';
import { runnerJournals } from '../cni/directories.ts';
import { listPods } from '../delegate/record.ts';

/** An attachment with everything that records say about it. */
export interface RecordedAttachment extends KnownAttachment {
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
  const cacheDir = cacheDirOf(runtime);
  const listed = listKnown({ cacheDir, journals: [stateDir, delegates] });
  const podList = listPods(pods);
  const through = new Map(
    podList.pods.flatMap(({ record: { network, containerId }, networks }) =>
      networks.map(one => [keyOf({ ...one, containerId }), network] as const),
    ),
  );
  const found = new Map<string, RecordedAttachment>();
  for (const one of listed.attachments) {
    const { known, record } = one;
    const key = keyOf(known);
    found.set(key, {
      ...one,
      through: through.get(key),
      unsettled: record && findReason(record, env),
    });
  }
  const damaged = [...listed.damaged, ...podList.damaged].map(({ message }) => message);
  return { attachments: [...found.values()], damaged };
}
