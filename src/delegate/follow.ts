// How do the networks of a running pod follow its annotation, and how does each come and go?
//
// Only networks that the annotation selected are attached and detached: the default network and those of the configuration are
// never touched.

import { type HeldKnown, type KnownAttachment, readAttachment } from '../attachments/store.ts';
import { argOf, podNamedIn } from '../cni/env.ts';
import { invalidConfig, invalidEnvironment, toCniError, tryAgainLater } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { addOne, refuseHeldDevices, toRecordedNetwork } from './add.ts';
import { type PodClaims, readClaims } from './claims.ts';
import { type Cluster, type KubernetesPod, MACHINE_ANNOTATION, type NetworkStatus } from './cluster.ts';
import { attachedEvents, failureEvents, tellCluster } from './cluster-pod.ts';
import { editRoutes, interfacesOf } from './default-route.ts';
import { deleteOne } from './delete.ts';
import { PodDevices, readDeviceInfo } from './devices.ts';
import { endMove, isMovingTo, leaveMachine } from './moving.ts';
import { statusOf } from './network-status.ts';
import { type PlannedNetwork, planNetwork } from './plan.ts';
import {
  isThere,
  type PodContents,
  type PodKey,
  parsePod,
  type RecordedNetwork,
  recall,
  renderPod,
  runtimeOf,
  withPod,
  writeMultusNote,
} from './record.ts';
import { isOfMachine, type Pod, type Runner } from './runner.ts';
import { NETWORKS_ANNOTATION } from './selection.ts';
import { listAnnotated, type WantedNetwork } from './wanted.ts';

interface PodInCluster {
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
  const record = readAttachment({ journals: [runner.podsDir] }, key);
  if (!cluster || !namespace || !name || !record || !isFollowing(record, pod)) return;
  const place = { cluster, namespace, name };
  const uid = argOf(pod, 'K8S_POD_UID');
  const known = await cluster.findPod(namespace, name, uid);
  const { networks, follow } = parsePod(record);
  const isSettled = networks.every(({ state }) => state === undefined);
  if (known && isSettled && annotationOf(known) === follow?.annotation) return;
  const found = await readPod(place, uid);
  if (found === undefined) return;
  try {
    const change = () =>
      withPod(runner, key, 'add', async ({ known }) => {
        if (known && isFollowing(known.record, pod)) await followHeld(runner, pod, known, place, found);
      });
    await (runner.whileAlone?.(key.containerId, change) ?? change());
  } catch (error) {
    const said = failureEvents('NetworksNotChanged', toCniError(error), annotationOf(found));
    await tellCluster(cluster, { ...place, uid: found.uid }, said, runner.warn);
    throw error;
  }
}

async function followHeld(
  runner: Runner,
  pod: Pod,
  held: HeldKnown,
  place: PodInCluster,
  found: KubernetesPod,
): Promise<void> {
  const live = new LiveNetworks(runner, held);
  await live.removeUnsettled();
  const wanted = listAnnotated(runner.options, pod, found.annotations);
  const { going, coming } = planFollowing(live.networks, wanted);
  const isMachine = found.annotations[MACHINE_ANNOTATION] !== undefined;
  if (isMachine && coming.some(({ selection }) => isOfMachine(selection))) await refuseMoving(runner, pod);
  const claims = await readClaims(runner, pod, coming);
  const leaving = new Set(going.map(({ ifname }) => ifname));
  const planned = await live.plan(pod, claims.wanted, leaving);
  claims.refuseForeign(planned);
  let failure: unknown;
  try {
    await live.detach(going);
    await live.attach(planned, claims, isMachine);
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
  live.noteAnnotation(annotationOf(found));
}

/** What belongs to a machine that is still on its way here must not speak yet. @throws CniError 11 */
async function refuseMoving(runner: Runner, pod: Pod): Promise<void> {
  if (!(await isMovingTo(runner, pod))) return;
  throw tryAgainLater(
    `Cannot attach further networks to container "${pod.containerId}": the virtual machine that moves to it has not arrived yet`,
  );
}

/** The pod's status changes often, so a write of an old version is repeated with the present one. */
async function publish(
  place: PodInCluster,
  found: KubernetesPod,
  status: readonly NetworkStatus[],
): Promise<void> {
  let now: KubernetesPod | undefined = found;
  for (let tries = 0; now && tries < PUBLISH_TRIES; tries++) {
    if (await place.cluster.replaceStatus(place.namespace, place.name, now, status)) return;
    now = await readPod(place, found.uid);
  }
  if (now === undefined) return;
  throw tryAgainLater(
    `Cannot write network status of pod "${place.namespace}/${place.name}": it was changed each time`,
  );
}

const PUBLISH_TRIES = 5;

/** As the server has it now; undefined if it is gone or another one has its name. */
async function readPod(
  { cluster, namespace, name }: PodInCluster,
  uid: string | undefined,
): Promise<KubernetesPod | undefined> {
  const found = await cluster.findPod(namespace, name);
  return uid === undefined || found?.uid === uid ? found : undefined;
}

/** Its ADD has succeeded, for networks that follow the annotation, in the namespace that is still there. */
function isFollowing(record: KnownAttachment, { netns }: Pod): boolean {
  return isThere(record, netns) && parsePod(record).follow !== undefined;
}

function annotationOf({ annotations }: KubernetesPod): string {
  return annotations[NETWORKS_ANNOTATION] ?? '';
}

/**
 * The difference between what a pod has and what its annotation selects. Compares networks with selections, element by element: a changed request for the same network is another element. The order
 * does not matter. Networks that no annotation selected stay.
 */
export function planFollowing(
  networks: readonly RecordedNetwork[],
  wanted: readonly WantedNetwork[],
): { readonly going: readonly RecordedNetwork[]; readonly coming: readonly WantedNetwork[] } {
  const coming = [...wanted];
  const going = networks.filter(({ asked }) => {
    if (asked === undefined) return false;
    const index = coming.findIndex(one => one.asked === asked);
    if (index >= 0) coming.splice(index, 1);
    return index < 0;
  });
  return { going, coming };
}

/** The networks of a pod that is held. Each change is in the record before and after it is made. */
class LiveNetworks {
  readonly #runner: Runner;
  readonly #held: HeldKnown;
  readonly #runtime: Runner['runtime'];
  #contents: PodContents;

  constructor(runner: Runner, held: HeldKnown) {
    const pod = parsePod(held.record);
    this.#runner = runner;
    this.#held = held;
    this.#contents = pod;
    this.#runtime = runtimeOf(runner, pod);
  }

  get networks(): readonly RecordedNetwork[] {
    return this.#contents.networks;
  }

  /** As the pod's annotation should have it. */
  get status(): readonly NetworkStatus[] {
    const there = this.networks.filter(({ state }) => state === undefined);
    return there.map(({ status = {} }) => status as unknown as NetworkStatus);
  }

  /** Deletes what a process was attaching or detaching when it died. @throws CniError of what cannot be deleted */
  async removeUnsettled(): Promise<void> {
    await this.#remove(this.networks.filter(({ state }) => state !== undefined));
  }

  /** The networks follow this annotation now. @throws CniError 5 */
  noteAnnotation(annotation: string): void {
    const { follow } = this.#contents;
    if (follow) this.#contents = { ...this.#contents, follow: { ...follow, annotation } };
    this.#write(this.networks);
  }

  /**
   * Plans networks, with interface names that are free once some others have left.
   * @throws CniError 7 for mistakes in what is wanted, 4 for a name that is taken; then nothing is changed
   */
  async plan(
    pod: Pod,
    wanted: readonly WantedNetwork[],
    leaving: ReadonlySet<string>,
  ): Promise<PlannedNetwork[]> {
    const { options } = this.#runner;
    const used = new Set(this.networks.map(({ ifname }) => ifname).filter(name => !leaving.has(name)));
    for (const { selection } of wanted)
      if (selection.ifname) this.#claimName(selection.ifname, used, leaving);
    const staying = this.networks.filter(({ ifname }) => !leaving.has(ifname));
    const given = staying.flatMap(({ device }) => device ?? []);
    const devices = new PodDevices(options, pod, wanted, given);
    const planned: PlannedNetwork[] = [];
    for (const one of wanted) {
      refuseDefaultRoute(one);
      let number = 1;
      const next = () => `${options.interfacePrefix}${number}`;
      while (!one.selection.ifname && this.#isTaken(next(), used, leaving)) number++;
      const ifname = one.selection.ifname ?? next();
      used.add(ifname);
      planned.push(await planNetwork(options, pod, one, { index: 1, ifname, devices }));
    }
    return planned;
  }

  /** DEL of networks with the inputs of their ADD. @throws CniError of the first that fails; it stays on record */
  async detach(going: readonly RecordedNetwork[]): Promise<void> {
    if (going.length === 0) return;
    this.#write(this.networks.map(one => (going.includes(one) ? { ...one, state: 'going' as const } : one)));
    await this.#remove(this.networks.filter(({ state }) => state === 'going'));
  }

  /**
   * ADD of networks, all or none. Only once the claims have their addresses are they settled: a process that dies before leaves networks
   * that the next one attaches again.
   * @param isMachine whether the pod runs a virtual machine
   * @throws CniError of the network or the claim that fails
   */
  async attach(planned: readonly PlannedNetwork[], claims: PodClaims, isMachine: boolean): Promise<void> {
    if (planned.length === 0) return;
    const before = this.networks;
    const coming = planned.map(toRecordedNetwork);
    if (isMachine) this.#noteMachine(planned.filter(({ selection }) => isOfMachine(selection)));
    this.#write([...before, ...coming.map(network => ({ ...network, state: 'coming' as const }))]);
    const results: JsonObject[] = [];
    try {
      refuseHeldDevices(this.#runner, this.#held.record, planned);
      for (const network of planned) {
        const route = (given: JsonObject) => this.#keepDefaultRoute(network, given);
        results.push(await addOne(network, this.#runtime, route));
      }
      await claims.fill(planned, results);
      const statusAt = (i: number) => {
        const network = planned[i] as PlannedNetwork;
        return { ...statusOf(network, results[i] as JsonObject, false, readDeviceInfo(network)) };
      };
      this.#write([...before, ...coming.map((network, i) => ({ ...network, status: statusAt(i) }))]);
    } catch (error) {
      await claims.empty();
      // What cannot be deleted now stays on record, and is tried again.
      await this.removeUnsettled().catch(problem => {
        this.#runner.warn('a network could not be detached again', { error: String(problem) });
      });
      throw error;
    }
  }

  /** These interfaces have what belongs to the machine: they fall silent when it moves away. */
  #noteMachine(networks: readonly PlannedNetwork[]): void {
    const { machine, follow } = this.#contents;
    const call = machine?.call ?? follow?.call;
    const ifnames = networks.map(({ attachment }) => attachment.ifname);
    if (!call || ifnames.length === 0) return;
    const known = machine ?? { ifnames: [], moves: false, call };
    this.#contents = { ...this.#contents, machine: { ...known, ifnames: [...known.ifnames, ...ifnames] } };
  }

  /** The pod keeps the default route that it has: the kernel might prefer a second one. */
  async #keepDefaultRoute({ attachment }: PlannedNetwork, result: JsonObject): Promise<JsonObject> {
    const routes = await this.#runner.routes();
    const own = interfacesOf(result, attachment);
    const others = this.networks.map(({ ifname }) => ifname).filter(name => !own.includes(name));
    const present = routes.familiesWithDefault(others);
    const remove = routes.familiesWithDefault(own).filter(family => present.includes(family));
    if (remove.length === 0) return result;
    routes.removeDefaults(own, remove);
    return editRoutes(result, { remove, add: [] });
  }

  async #remove(networks: readonly RecordedNetwork[]): Promise<void> {
    const { record } = this.#held;
    // The signal that stopped the call must not stop its undo.
    const runtime = { ...this.#runtime, signal: undefined };
    for (const network of networks.toReversed()) {
      await deleteOne(recall(record, network, record.netns), runtime);
      this.#write(this.networks.filter(one => one !== network));
    }
  }

  #write(networks: readonly RecordedNetwork[]): void {
    const { machine } = this.#contents;
    const ifnames = machine?.ifnames.filter(name => networks.some(({ ifname }) => ifname === name)) ?? [];
    const next: PodContents = {
      ...this.#contents,
      networks: [...networks],
      machine: machine && (ifnames.length || machine.moves) ? { ...machine, ifnames } : undefined,
    };
    const place = { cacheDir: next.cacheDir, containerId: this.#held.record.containerId };
    if (this.#runner.isSharedWithMultus) writeMultusNote(place, networks);
    this.#held.restate(renderPod(next));
    this.#contents = next;
  }

  #isTaken(name: string, used: ReadonlySet<string>, leaving: ReadonlySet<string>): boolean {
    return used.has(name) || (!leaving.has(name) && this.#runner.findTaken([name]) !== undefined);
  }

  #claimName(name: string, used: Set<string>, leaving: ReadonlySet<string>): void {
    if (this.#isTaken(name, used, leaving))
      throw invalidEnvironment(
        `Cannot attach a network as "${name}": the pod already has an interface of that name`,
      );
    used.add(name);
  }
}

function refuseDefaultRoute({ selection: { name, defaultRoute } }: WantedNetwork): void {
  if (defaultRoute === undefined) return;
  throw invalidConfig(
    `Cannot give the default route of a running pod to network "${name}": its connections would break; delete the pod and create it again`,
  );
}
