// Which device of a pod does each of its networks get?
//
// A definition names a resource, and the kubelet has allocated devices of it to the pod. They are given out in the order in which
// it lists them, to the networks in their order, each device once. The record of the pod names them, so that a network that comes
// later gets another one, and no other pod the same.

import { argOf, podNamedIn } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import type { Device } from './cluster.ts';
import type { Pod, RunnerOptions } from './options.ts';
import type { WantedNetwork } from './wanted.ts';

/** A network that may get a device. */
interface Receiver {
  readonly label: string;
  /** That its definition names. */
  readonly resource: string | undefined;
  /** Device that the pod names. */
  readonly named: string | undefined;
}

/** The devices of a pod while its networks are planned. */
export class PodDevices {
  readonly #dir: string;
  readonly #listClaimed: RunnerOptions['listClaimedDevices'];
  readonly #pod: Pod;
  readonly #given: Device[];
  /** Not for networks that name none. */
  readonly #named: ReadonlySet<string>;
  #allocated: readonly Device[] | undefined;

  /** @param given devices that networks of the pod have already */
  constructor(
    { kubeletDir, listClaimedDevices }: RunnerOptions,
    pod: Pod,
    wanted: readonly WantedNetwork[],
    given: readonly Device[] = [],
  ) {
    this.#dir = kubeletDir;
    this.#listClaimed = listClaimedDevices;
    this.#pod = pod;
    this.#given = [...given];
    this.#named = new Set(wanted.flatMap(one => (one.byPod && one.selection.deviceId) || []));
  }

  /**
   * A device that no other network of the pod has. The kubelet is asked by the first that needs one.
   * @returns undefined for a network that needs none: also if the kubelet has allocated none of the resource, which may then only say
   *   on which nodes the network exists
   * @throws CniError 7 when the pod has too few, or was not given the one that it names; 11 while the kubelet does not answer
   */
  async give({ label, resource, named }: Receiver): Promise<Device | undefined> {
    if (resource === undefined && named === undefined) return undefined;
    this.#allocated ??= await this.#ask(label);
    const fitting = this.#allocated.filter(one => resource === undefined || one.resource === resource);
    if (named === undefined && fitting.length === 0) return undefined;
    const found = fitting.find(one =>
      named === undefined ? !this.#named.has(one.id) && !this.#isGiven(one) : one.id === named,
    );
    if (found === undefined) throw refusal(label, named, resource, fitting);
    if (this.#isGiven(found)) throw cannotGive(label, found.id, 'another network of the pod has it');
    this.#given.push(found);
    return found;
  }

  #isGiven({ resource, id }: Device): boolean {
    return this.#given.some(one => one.id === id && one.resource === resource);
  }

  async #ask(label: string): Promise<readonly Device[]> {
    const place = podNamedIn(this.#pod);
    if (place === undefined) {
      const why = 'the container is not a pod: CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME';
      throw new CniError(ErrorCode.invalidConfig, `Cannot find a device for network "${label}": ${why}`);
    }
    const { listPodDevices } = await import('./kubelet.ts');
    const pod = { ...place, uid: argOf(this.#pod, 'K8S_POD_UID') };
    const [own, claimed] = [await listPodDevices(this.#dir, pod), await this.#listClaimed?.(pod)];
    return [...own, ...(claimed ?? [])];
  }
}

function refusal(
  label: string,
  named: string | undefined,
  resource: string | undefined,
  allocated: readonly Device[],
): CniError {
  const has = `the kubelet gave the pod ${allocated.map(({ id }) => id).join(', ') || 'none'}`;
  if (named !== undefined) return cannotGive(label, named, 'the pod names it, but was not given it', has);
  const why = 'other networks of the pod have all of them; the pod has to request one for each network';
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot give a device of "${resource}" to network "${label}": ${why}`,
    { details: has },
  );
}

function cannotGive(label: string, id: string, why: string, details?: string): CniError {
  const message = `Cannot give device ${JSON.stringify(id)} to network "${label}": ${why}`;
  return new CniError(ErrorCode.invalidConfig, message, defined({ details }));
}
