// What do the files and the kernel of a node say, each read once, when it is first asked for?

import { type KnownAttachment, listAttachments, pastOf } from '../attachments/store.ts';
import { listNetworks } from '../chain/config/load.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { keyOf } from '../cni/attachment.ts';
import { cacheDirOf, runnerJournals } from '../cni/directories.ts';
import type { CniError } from '../cni/errors.ts';
import { listPods, whyEnded } from '../delegate/record.ts';
import { Tables } from '../netlink/tables.ts';
import { standingOf, toListed, type WatchedAttachment, withPods } from '../watch/attachments.ts';

/** An attachment with everything that records say about it. */
export interface RecordedAttachment extends KnownAttachment {
  /** The network through which a delegate runner attached it. */
  readonly through: string | undefined;
  /** Why it is not settled. */
  readonly unsettled: string | undefined;
  /** Its path names no namespace, or another one than that of its ADD. */
  readonly isGone: boolean;
}

/** An operation that was begun, or failed, and is to be undone. */
interface Unsettled {
  readonly record: KnownAttachment;
  readonly why: string;
}

interface OnRecord {
  readonly attachments: readonly RecordedAttachment[];
  /** Interfaces that a delegate runner is making or deleting, or was when it died: its record of a pod is written before the first of them. */
  readonly inPods: readonly Pick<KnownAttachment, 'network' | 'containerId' | 'ifname'>[];
  /** Those of them that were made and not deleted, sorted. */
  readonly standing: readonly WatchedAttachment[];
  /** Of pods, then of attachments. */
  readonly unsettled: readonly Unsettled[];
  /** About files that cannot be read. */
  readonly damaged: readonly CniError[];
}

/** Configurations, records and the kernel's tables of a node. Commands that show several views of it hand one on to each. */
export interface NodeFacts {
  /** @throws CniError 5 */
  networks(): ReturnType<typeof listNetworks>;
  /** @throws CniError 5 */
  attachments(): OnRecord;
  readonly kernel: Tables;
}

/** The facts in these directories, and in this process's network namespace. */
export function factsIn(
  confDir: string,
  runtime: Pick<ChainRuntime, 'cacheDir' | 'stateDir' | 'env'>,
): NodeFacts {
  let networks: ReturnType<typeof listNetworks> | undefined;
  let records: OnRecord | undefined;
  return {
    networks: () => (networks ??= listNetworks(confDir)),
    attachments: () => (records ??= readRecords(runtime)),
    kernel: new Tables(),
  };
}

/**
 * Reads libcni's cache, our journal and that of the delegate runner, each once.
 * @throws CniError 5 if one of them cannot be listed
 */
export function readRecords(runtime: Pick<ChainRuntime, 'cacheDir' | 'stateDir' | 'env'>): OnRecord {
  const { stateDir = '', env = process.env } = runtime;
  const { pods, delegates } = runnerJournals(stateDir);
  const listed = listAttachments({ cacheDir: cacheDirOf(runtime), journals: [stateDir, delegates] });
  const podList = listPods(pods);
  const records = [...podList.pods.map(({ record }) => record), ...listed.attachments];
  const reasons = new Map(records.map(record => [record, pastOf(record, env).toDelete]));
  for (const pod of podList.pods) reasons.set(pod.record, reasons.get(pod.record) ?? whyEnded(pod, env));
  const unsettled = [...reasons].flatMap(([record, why]) => (why === undefined ? [] : { record, why }));
  const inPods = podList.pods.flatMap(({ record, networks }) => {
    const { network: through, containerId } = record;
    const { stands } = pastOf(record, env);
    return networks.map(({ network, ifname, state }) => ({
      ...{ network, containerId, ifname, through },
      isSettled: stands && state === undefined,
    }));
  });
  const through = new Map(inPods.map(one => [keyOf(one), one.through]));
  const found = new Map(
    listed.attachments.map(one => {
      const key = keyOf(one);
      const isGone = pastOf(one, env).netns() !== 'same';
      return [key, { ...one, through: through.get(key), unsettled: reasons.get(one), isGone }] as const;
    }),
  );
  const all = standingOf(listed.attachments);
  const ofPods = podList.pods.map(pod => toListed(pod, pods));
  return {
    attachments: [...found.values()],
    inPods: inPods.filter(({ isSettled }) => !isSettled),
    standing: [...withPods(all, ofPods).values()].sort((a, b) => (a.key < b.key ? -1 : 1)),
    unsettled,
    damaged: [...listed.damaged, ...podList.damaged],
  };
}
