// How do networks come to and leave a pod that runs, so that its record always names what may exist?

import type { HeldKnown } from '../attachments/store.ts';
import { addNetwork, deleteNetwork } from '../chain/run/run.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { defined, type JsonObject } from '../cni/json.ts';
import { refuseUnheeded } from './add.ts';
import { refuseHeldDevices, toRecordedNetwork } from './begin-pod.ts';
import type { NetworkStatus } from './cluster.ts';
import { editRoutes, interfacesOf } from './default-route.ts';
import { placeDeviceInfo, readDeviceInfo, removeDeviceInfo } from './device-info.ts';
import { PodDevices } from './devices.ts';
import { statusOf } from './network-status.ts';
import type { Pod } from './options.ts';
import { type PlannedNetwork, planNetwork } from './plan.ts';
import {
  type PodContents,
  parsePod,
  type RecordedNetwork,
  recall,
  renderPod,
  runtimeOf,
  writeMultusNote,
} from './record.ts';
import type { Runner } from './runner.ts';
import type { Wanted } from './wanted.ts';

/** The networks of a pod that is held. Each change is in the record before and after it is made. */
export class LiveNetworks {
  readonly #runner: Runner;
  readonly #held: HeldKnown;
  readonly #runtime: Runner['runtime'];
  #contents: PodContents;
  #networks: readonly RecordedNetwork[];

  constructor(runner: Runner, held: HeldKnown) {
    const pod = parsePod(held.record);
    this.#runner = runner;
    this.#held = held;
    this.#contents = pod;
    this.#runtime = runtimeOf(runner, pod);
    this.#networks = pod.networks;
  }

  get networks(): readonly RecordedNetwork[] {
    return this.#networks;
  }

  /** As the pod's annotation should have it. */
  get status(): readonly NetworkStatus[] {
    const there = this.networks.filter(({ state }) => state === undefined);
    return there.map(({ status = {} }) => status as unknown as NetworkStatus);
  }

  /** Deletes what a process was attaching or detaching when it died. @throws CniError of what cannot be deleted */
  async settle(): Promise<void> {
    await this.#remove(this.networks.filter(({ state }) => state !== undefined));
  }

  /** The networks follow this annotation now. @throws CniError 5 */
  settled(annotation: string): void {
    const { follow } = this.#contents;
    if (follow) this.#contents = { ...this.#contents, follow: { ...follow, annotation } };
    this.#write(this.networks);
  }

  /**
   * Plans networks, with interface names that are free once some others have left.
   * @throws CniError 7 for mistakes in what is wanted, 4 for a name that is taken; then nothing is changed
   */
  async plan(pod: Pod, wanted: readonly Wanted[], leaving: ReadonlySet<string>): Promise<PlannedNetwork[]> {
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
    this.#mark(going);
    await this.#remove(this.networks.filter(({ state }) => state === 'going'));
  }

  /**
   * ADD of networks, all or none.
   * @returns their results
   * @throws CniError of the network that fails
   */
  async attach(planned: readonly PlannedNetwork[]): Promise<JsonObject[]> {
    if (planned.length === 0) return [];
    const before = this.networks;
    const coming = planned.map(toRecordedNetwork);
    this.#write([...before, ...coming.map(network => ({ ...network, state: 'coming' as const }))]);
    const results: JsonObject[] = [];
    try {
      refuseHeldDevices(this.#runner, this.#held.record, planned);
      for (const network of planned) {
        placeDeviceInfo(network);
        const result = await addNetwork(network.list, network.attachment, this.#runtime);
        refuseUnheeded(network, result);
        results.push(await this.#keepDefaultRoute(network, result));
      }
      const status = planned.map((network, i) => ({
        ...statusOf(network, results[i] as JsonObject, false, readDeviceInfo(network)),
      }));
      this.#write([
        ...before,
        ...coming.map((network, i) => ({ ...network, ...defined({ status: status[i] }) })),
      ]);
      return results;
    } catch (error) {
      // What cannot be deleted now stays on record, and is tried again.
      await this.settle().catch(problem => {
        this.#runner.warn('a network could not be detached again', { error: String(problem) });
      });
      throw error;
    }
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
      const { list, attachment } = recall(record, network, record.netns);
      await deleteNetwork(list, attachment, runtime);
      removeDeviceInfo({ list, attachment });
      this.#write(this.networks.filter(one => one !== network));
    }
  }

  #mark(going: readonly RecordedNetwork[]): void {
    this.#write(this.networks.map(one => (going.includes(one) ? { ...one, state: 'going' as const } : one)));
  }

  #write(networks: readonly RecordedNetwork[]): void {
    this.#contents = { ...this.#contents, networks: [...networks] };
    const place = { cacheDir: this.#contents.cacheDir, containerId: this.#held.record.containerId };
    if (this.#runner.isSharedWithMultus) writeMultusNote(place, networks);
    this.#held.restate(renderPod(this.#contents));
    this.#networks = networks;
  }

  #isTaken(name: string, used: ReadonlySet<string>, leaving: ReadonlySet<string>): boolean {
    return used.has(name) || (!leaving.has(name) && this.#runner.findTaken([name]) !== undefined);
  }

  #claimName(name: string, used: Set<string>, leaving: ReadonlySet<string>): void {
    if (this.#isTaken(name, used, leaving))
      throw new CniError(
        ErrorCode.invalidEnvironment,
        `Cannot attach a network as "${name}": the pod already has an interface of that name`,
      );
    used.add(name);
  }
}

function refuseDefaultRoute({ selection: { name, defaultRoute } }: Wanted): void {
  if (defaultRoute === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot give the default route of a running pod to network "${name}": its connections would break; delete the pod and create it again`,
  );
}
