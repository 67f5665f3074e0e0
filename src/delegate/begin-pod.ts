// How does the ADD of a pod keep its note while it runs?
import type { Conflist } from '../chain/config/conflist.ts';
import { type AddRecord, beginRecord } from '../chain/records/add-record.ts';
import { defined } from '../cni/defined.ts';
import { CURRENT_VERSION } from '../cni/version.ts';
import type { Lock } from '../journal/lock.ts';
import { NETWORKS_ANNOTATION } from './annotation.ts';
import type { NetworkStatus } from './cluster.ts';
import type { PlannedNetwork } from './plan.ts';
import { type PodContents, type PodKey, type RecordedNetwork, renderPod } from './record.ts';
import type { Runner } from './runner.ts';

/**
 * Begins the record of a pod whose networks are about to be attached.
 * @throws CniError 5
 */
export function beginPod(
  { runtime, podsDir, follow }: Runner,
  { network, containerId, ifname, netns }: PodKey & { readonly netns: string },
  networks: readonly PlannedNetwork[],
  annotations: Readonly<Record<string, string>>,
  lock: Lock,
): PodAddRecord {
  const { cacheDir, stateDir } = runtime;
  const contents: Omit<PodContents, 'kind'> = {
    cacheDir,
    stateDir,
    networks: networks.map(toRecordedNetwork),
    ...(follow && { follow: { annotation: annotations[NETWORKS_ANNOTATION] ?? '', call: follow } }),
  };
  const pod = { ...NO_LIST, name: network, source: renderPod(contents) };
  const place = { ...runtime, stateDir: podsDir, cacheDir: podsDir };
  const begun = { executables: [], standing: false, lock };
  const record = beginRecord(pod, { containerId, ifname, netns }, place, begun);
  return {
    ...record,
    commit(statuses) {
      const attached = contents.networks.map((one, index) => ({ ...one, status: { ...statuses[index] } }));
      record.commit({ source: renderPod({ ...contents, networks: attached }) });
    },
  };
}

/** The note of a pod's ADD, whose parts are networks. */
export interface PodAddRecord extends Omit<AddRecord, 'commit'> {
  /** All networks are attached. @param statuses of each, as published @throws CniError 5 */
  commit(statuses: readonly NetworkStatus[]): void;
}

/** What the record keeps of a network. */
export function toRecordedNetwork({
  label,
  list,
  attachment,
  device,
  asked,
}: PlannedNetwork): RecordedNetwork {
  return {
    label,
    network: list.name,
    ifname: attachment.ifname,
    source: list.source,
    args: (attachment.args ?? []).map(([name, value]) => [name, value]),
    capabilityArgs: attachment.capabilityArgs ?? {},
    ...defined({ device: device && { ...device }, asked }),
  };
}

const NO_LIST = {
  version: CURRENT_VERSION,
  disableCheck: false,
  disableGC: false,
  plugins: [],
} satisfies Partial<Conflist>;
