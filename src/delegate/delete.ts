// How does a pod lose all that its record names, and nothing stay behind unnoticed?
import { toRecorded } from '../chain/add-record.ts';
import type { CachedAttachment } from '../chain/cache-record.ts';
import { parseFrozen } from '../chain/conflist.ts';
import { findKnown } from '../chain/known.ts';
import { joinErrors } from '../chain/link-errors.ts';
import { listAttachments } from '../chain/result-cache.ts';
import { deleteNetwork } from '../chain/run.ts';
import { type Attachment, checkAttachment } from '../chain/runtime.ts';
import { winClaim } from '../chain/tear-down.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { Claim } from '../journal/claim.ts';
import { lastBegun } from '../journal/lines.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { dropRecord } from '../journal/store.ts';
import { listPods, type PodKey, type PodRecord, parsePod, recall, runtimeOf } from './record.ts';
import type { Runner } from './runner.ts';
import { endStrays } from './strays.ts';

/**
 * Detaches a pod from every network on record, last first, whatever happens to the others. A network is forgotten when
 * its own DEL has succeeded, the pod with its last one. No configuration of today is looked at. A pod that is not on
 * record has nothing. Waits while another process works on the pod.
 * @param netns path of the namespace; may be empty when it is gone
 * @param wanted decides by the record, once nobody else can change it, whether the pod is to be detached at all
 * @throws CniError of the network that failed, or one that joins several; 11 while another process works on the pod
 */
export async function deletePod(
  runner: Runner,
  key: PodKey,
  netns: string,
  wanted?: (record: AttachmentRecord) => boolean,
): Promise<void> {
  const { podsDir, runtime } = runner;
  checkAttachment({ ...key, netns }, 'DEL', runtime);
  const claim = await winClaim(key, { ...runtime, stateDir: podsDir }, wanted);
  if (claim === undefined && wanted) return;
  // An ADD that asks is itself at work on the pod.
  if (claim && !wanted) await endLinksOf(claim.record, runner);
  const errors = await deleteAll(runner, key, claim, netns);
  if (!errors.length) {
    if (claim) claim.drop();
    else dropRecord(podsDir, key);
    return;
  }
  claim?.fail(errors.map(toRecorded));
  throw joinErrors(`Cannot delete the networks of container "${key.containerId}"`, errors);
}

/**
 * DEL of the first so many networks of a pod, last first.
 * @returns the errors of those that failed
 */
export async function deleteNetworks(
  runner: Pick<Runner, 'runtime'>,
  pod: PodRecord,
  begun: number,
  netns: string,
): Promise<unknown[]> {
  const runtime = runtimeOf(runner, pod);
  const errors: unknown[] = [];
  for (const network of pod.networks.slice(0, begun).toReversed()) {
    try {
      const { list, attachment } = recall(pod.record, network, netns);
      const id = { network: list.name, containerId: attachment.containerId, ifname: attachment.ifname };
      // An earlier attempt has reached all of them: who is forgotten since, is gone.
      if (pod.record.attempts > 0 && findKnown(id, runtime) === undefined) continue;
      await deleteNetwork(list, attachment, runtime);
    } catch (error) {
      errors.push(error);
    }
  }
  return errors;
}

/** Nobody waits any more for links that an ADD left running when it was cut off. */
async function endLinksOf(record: AttachmentRecord, runner: Runner): Promise<void> {
  if (record.added || record.attempts > 0) return;
  const ifnames = findPod(runner, record)?.networks.map(({ ifname }) => ifname) ?? [];
  await endStrays(record.containerId, ifnames);
}

async function deleteAll(
  runner: Runner,
  key: PodKey,
  claim: Claim | undefined,
  netns: string,
): Promise<unknown[]> {
  const pod = claim && findPod(runner, claim.record);
  if (pod === undefined) return deleteUnrecorded(runner, key, netns);
  return deleteNetworks(runner, pod, lastBegun(pod.record, pod.networks.length) + 1, ownNetns(pod, netns));
}

/** The namespace of the ADD, wherever it is by now: what is in another one is somebody else's. */
export function ownNetns({ record }: PodRecord, given: string): string {
  const { netns, netnsIdentity } = record;
  const isOwn = (path: string) => compareNetns(path, netnsIdentity) === 'same';
  if (given === '' || isOwn(given)) return given;
  return isOwn(netns) ? netns : '';
}

/** A record that says nothing of networks is none; the result cache then has to say what there is. */
function findPod(runner: Runner, record: AttachmentRecord): PodRecord | undefined {
  try {
    return parsePod(record);
  } catch (error) {
    if (!(error instanceof CniError && error.code === ErrorCode.decodingFailure)) throw error;
    runner.warn(`${error.message}; the result cache stands in for it`);
    return undefined;
  }
}

/** What the result cache knows of the container, and no record of it: records get lost, too. */
async function deleteUnrecorded(runner: Runner, key: PodKey, netns: string): Promise<unknown[]> {
  const { cacheDir } = runner.runtime;
  const { attachments, damaged } = listAttachments(cacheDir, { containerId: key.containerId });
  for (const problem of damaged) runner.warn(problem.message);
  if (!attachments.length) return [];
  const { pods } = listPods(runner.podsDir);
  const recorded = pods
    .filter(({ record }) => record.containerId === key.containerId)
    .flatMap(({ networks }) => networks);
  const errors: unknown[] = [];
  for (const one of attachments) {
    if (recorded.some(({ network, ifname }) => network === one.network && ifname === one.ifname)) continue;
    if (one.source === undefined) continue;
    try {
      await deleteNetwork(parseFrozen(one.source), attachmentOf(one, netns), runner.runtime);
    } catch (error) {
      errors.push(error);
    }
  }
  return errors;
}

function attachmentOf(
  { containerId, ifname, args, capabilityArgs }: CachedAttachment,
  netns: string,
): Attachment {
  return { containerId, ifname, args, capabilityArgs, netns };
}
