// Which networks does a container have without a record of its pod?
//
// Records get lost, and multus, in whose place the runner is, kept none of ours. What it attached is in the result cache.

import type { CachedAttachment } from '../attachments/store.ts';
import { listAttachments } from '../attachments/store.ts';
import { type Conflist, parseFrozen } from '../chain/config/conflist.ts';
import type { Attachment } from '../chain/run/runtime.ts';
import { listPods } from './record.ts';
import type { Runner } from './runner.ts';

/** A cached attachment whose configuration is known. */
export type Unrecorded = CachedAttachment & { readonly source: string };

/** The networks of a container that are in the result cache, and in no record of a pod. @throws CniError 5 */
export function listUnrecorded(runner: Runner, containerId: string): Unrecorded[] {
  const { attachments, damaged } = listAttachments(runner.runtime.cacheDir, { containerId });
  for (const problem of damaged) runner.warn(problem.message);
  if (!attachments.length) return [];
  const recorded = listPods(runner.podsDir)
    .pods.filter(({ record }) => record.containerId === containerId)
    .flatMap(({ networks }) => networks);
  const isRecorded = (one: CachedAttachment) =>
    recorded.some(({ network, ifname }) => network === one.network && ifname === one.ifname);
  return attachments.filter((one): one is Unrecorded => one.source !== undefined && !isRecorded(one));
}

/**
 * A cached network with the inputs of its ADD.
 * @param netns current path; it may be empty on DEL
 * @throws CniError 6, 7 when its configuration cannot be used
 */
export function recallCached(
  { source, containerId, ifname, args, capabilityArgs }: Unrecorded,
  netns: string,
): { list: Conflist; attachment: Attachment } {
  return { list: parseFrozen(source), attachment: { containerId, ifname, args, capabilityArgs, netns } };
}
