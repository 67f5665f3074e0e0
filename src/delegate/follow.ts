// How do the networks of a running pod follow its annotation?
//
// Only networks that the annotation selected are attached and detached: the default network and those of the configuration are
// never touched. The record names a network before it is attached and until it is detached, so a DEL at any moment deletes all.
import { compareNetns } from '../attachments/netns-identity.ts';
import {
  type AttachmentRecord,
  type HeldKnown,
  hold,
  isKnown,
  pastOf,
  readRecord,
} from '../attachments/store.ts';
import { holdCall } from '../chain/run/runtime.ts';
import { argOf, podNamedIn } from '../cni/env.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { type PodClaims, readClaims } from './claims.ts';
import type { Cluster, KubernetesPod, NetworkStatus } from './cluster.ts';
import { attachedEvents, failureEvents, tellCluster } from './cluster-pod.ts';
import { LiveNetworks } from './live-networks.ts';
import { endMove, leaveMachine } from './moving.ts';
import type { Pod } from './options.ts';
import type { PlannedNetwork } from './plan.ts';
import { inPods, type PodKey, parsePod, type RecordedNetwork } from './record.ts';
import type { Runner } from './runner.ts';
import { NETWORKS_ANNOTATION } from './selection.ts';
import { listAnnotated, type Wanted } from './wanted.ts';

/** A pod in its cluster. */
interface Place {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly name: string;
}

/**
 * Detaches the networks that the annotation of a pod no longer selects, attaches those that it selects now, and publishes the
 * status. Does nothing for a pod that is gone, or has the networks of its annotation. A failure is told to the cluster.
 * @throws CniError 11 if the cluster cannot be reached or a process works on the pod; 6 and 7 for a wrong annotation, with nothing
 *   changed; of the network that fails, with none attached
 */
export async function followPod(runner: Runner, key: PodKey, pod: Pod): Promise<void> {
  await endMove(runner, key, pod);
  await leaveMachine(runner, key, pod);
  const { namespace, name } = podNamedIn(pod) ?? {};
  const cluster = await runner.cluster?.();
  const record = readRecord(runner.podsDir, key);
  if (!cluster || !namespace || !name || !record || !isFollowing(record, pod)) return;
  const place = { cluster, namespace, name };
  const uid = argOf(pod, 'K8S_POD_UID');
  const known = await cluster.findPod(namespace, name, uid);
  const { networks, follow } = parsePod(record);
  const isSettled = networks.every(({ state }) => state === undefined);
  if (known && isSettled && annotationOf(known) === follow?.annotation) return;
  const found = await readPod(place, uid);
  if (found === undefined) return;
  const held = await hold(key, holdCall(inPods(runner.podsDir, runner.runtime), 'add'));
  try {
    if (isKnown(held) && isFollowing(held.record, pod)) await followHeld(runner, pod, { held, place, found });
  } catch (error) {
    const said = failureEvents('NetworksNotChanged', toCniError(error), annotationOf(found));
    await tellCluster(cluster, { ...place, uid: found.uid }, said, runner.warn);
    throw error;
  } finally {
    held.release();
  }
}

interface Followed {
  readonly held: HeldKnown;
  readonly place: Place;
  readonly found: KubernetesPod;
}

async function followHeld(runner: Runner, pod: Pod, { held, place, found }: Followed): Promise<void> {
  const live = new LiveNetworks(runner, held);
  await live.settle();
  const wanted = listAnnotated(runner.options, pod, found.annotations);
  const { going, coming } = planFollowing(live.networks, wanted);
  const claims = await readClaims(runner, pod, coming);
  const leaving = new Set(going.map(({ ifname }) => ifname));
  const planned = await live.plan(pod, claims.wanted, leaving);
  claims.refuseForeign(planned);
  let failure: unknown;
  try {
    await live.detach(going);
    await attachAll(live, planned, claims);
  } catch (error) {
    failure = error;
  }
  try {
    // After a failure, too, it says what the pod has.
    await publish(place, found, live.status);
  } catch (error) {
    failure ??= error;
  }
  if (failure !== undefined) throw failure;
  const attached = live.status.slice(live.status.length - planned.length);
  await tellCluster(place.cluster, { ...place, uid: found.uid }, attachedEvents(attached), runner.warn);
  live.settled(annotationOf(found));
}

async function attachAll(live: LiveNetworks, planned: readonly PlannedNetwork[], claims: PodClaims) {
  const results = await live.attach(planned);
  try {
    await claims.fill(planned, results);
  } catch (error) {
    await claims.empty();
    await live.detach(live.networks.slice(-planned.length));
    throw error;
  }
}

/** The pod's status changes often, so a write of an old version is repeated with the present one. */
async function publish(place: Place, found: KubernetesPod, status: readonly NetworkStatus[]): Promise<void> {
  let now: KubernetesPod | undefined = found;
  for (let tries = 0; now && tries < PUBLISH_TRIES; tries++) {
    if (await place.cluster.replaceStatus(place.namespace, place.name, now, status)) return;
    now = await readPod(place, found.uid);
  }
  if (now === undefined) return;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot write network status of pod "${place.namespace}/${place.name}": it was changed each time`,
  );
}

const PUBLISH_TRIES = 5;

/** As the server has it now; undefined if it is gone or another one has its name. */
async function readPod(
  { cluster, namespace, name }: Place,
  uid: string | undefined,
): Promise<KubernetesPod | undefined> {
  const found = await cluster.findPod(namespace, name);
  return uid === undefined || found?.uid === uid ? found : undefined;
}

/** Its ADD has succeeded, for networks that follow the annotation, in the namespace that is still there. */
function isFollowing(record: AttachmentRecord, { netns }: Pod): boolean {
  return (
    pastOf(record, undefined).stands &&
    parsePod(record).follow !== undefined &&
    compareNetns(netns, record) === 'same'
  );
}

function annotationOf({ annotations }: KubernetesPod): string {
  return annotations[NETWORKS_ANNOTATION] ?? '';
}

/** The difference between what a pod has and what its annotation selects. */
export interface Following {
  readonly going: readonly RecordedNetwork[];
  readonly coming: readonly Wanted[];
}

/**
 * Compares networks with selections, element by element: a changed request for the same network is another element. The order
 * does not matter. Networks that no annotation selected stay.
 */
export function planFollowing(networks: readonly RecordedNetwork[], wanted: readonly Wanted[]): Following {
  const coming = [...wanted];
  const going = networks.filter(({ asked }) => {
    if (asked === undefined) return false;
    const index = coming.findIndex(one => one.asked === asked);
    if (index >= 0) coming.splice(index, 1);
    return index < 0;
  });
  return { going, coming };
}
