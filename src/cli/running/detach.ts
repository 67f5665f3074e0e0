// How does a running container lose one of its networks, and which ones may it lose?

import { compareNetns, findNetnsIdentity } from '../../attachments/netns-identity.ts';
import type { AttachmentRecord } from '../../attachments/store.ts';
import { type Conflist, parseFrozen } from '../../chain/config/conflist.ts';
import { deleteNetwork } from '../../chain/run/run.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { RecordedAttachment } from '../../node/facts.ts';
import { originOf, sinceOf } from '../../node/read-node.ts';
import type { KnownContainer } from './container.ts';

/**
 * Refuses what the container's runtime counts on while it runs.
 * @throws CniError 7 for an attachment that another program made, and for the container's first interface
 */
export function refuseNeeded(one: RecordedAttachment, { containerId, attachments }: KnownContainer): void {
  if (hasEnded(one)) return;
  const why = reasonToKeep(one, attachments);
  if (why === undefined) return;
  const { network, ifname } = one.known;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot detach interface "${ifname}" of container "${containerId}" from network "${network}": ${why}; --force detaches it nevertheless`,
  );
}

/**
 * Runs DEL with the configuration of the ADD.
 * @throws CniError 6 if that is not known, 11 if it has been attached again since; else as deleteNetwork()
 */
export async function detach(
  { known, record, stateDir }: RecordedAttachment,
  runtime: ChainRuntime,
): Promise<void> {
  const { network, containerId, ifname, netns, args, capabilityArgs } = known;
  const attachment = { containerId, ifname, netns, args, capabilityArgs };
  const list = listOf(known);
  if (record === undefined) return deleteNetwork(list, attachment, runtime);
  let isAnother = false;
  await deleteNetwork(list, attachment, { ...runtime, stateDir, cacheDir: record.cacheDir }, now => {
    isAnother = now !== undefined && !isSameAdd(now, record);
    return now !== undefined && !isAnother;
  });
  if (!isAnother) return;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot detach container "${containerId}" from network "${network}": it has been attached again since it was looked up; try again`,
  );
}

function isSameAdd(a: AttachmentRecord, b: AttachmentRecord): boolean {
  const marks = ({ boot, netnsIdentity, netnsCookie, runner: { op, time } }: AttachmentRecord) =>
    [boot, netnsIdentity, netnsCookie, op, time].join(' ');
  return marks(a) === marks(b);
}

function listOf({ source, network, containerId }: RecordedAttachment['known']): Conflist {
  if (source !== undefined) return parseFrozen(source);
  throw new CniError(
    ErrorCode.decodingFailure,
    `Cannot detach container "${containerId}" from network "${network}": the configuration of its ADD is not on record; run DEL with the network's own`,
  );
}

/** Its namespace is gone, and with it its interface. */
function hasEnded({ known: { netns }, record }: RecordedAttachment): boolean {
  if (record === undefined) return findNetnsIdentity(netns) === undefined;
  return compareNetns(netns, record) !== 'same';
}

function reasonToKeep(one: RecordedAttachment, all: readonly RecordedAttachment[]): string | undefined {
  const { runner } = originOf(one);
  if (one.through !== undefined)
    return `the delegate runner of network "${one.through}" attached it, and reports it in the pod's network status`;
  if (one.record === undefined)
    return `${runner} made it, reports its address, and deletes it with the container`;
  if (firstOf(all) === one) return "it is the container's first, by which its runtime reaches it";
  return undefined;
}

/** `eth0`, which runtimes attach first; else the oldest. */
function firstOf(all: readonly RecordedAttachment[]): RecordedAttachment | undefined {
  const since = (one: RecordedAttachment) => sinceOf(one, process.env) ?? '';
  const oldestFirst = all.toSorted((a, b) => (since(a) < since(b) ? -1 : 1));
  return all.find(({ known }) => known.ifname === 'eth0') ?? oldestFirst[0];
}
