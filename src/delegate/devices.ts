// Which device of a pod does each of its networks get, and how do plugins and readers of a pod's status learn about it?
//
// A definition names a resource, and the kubelet has allocated devices of it to the pod. They are given out in the order in which
// it lists them, to the networks in their order, each device once. The record of the pod names them, so that a network that comes
// later gets another one, and no other pod the same.
//
// A device plugin may write a file about each device that it offers (Device information specification 1.1.0, sections 4 to 6). The network that
// gets the device gets a copy, in a file of its own, which its plugins read, or write if there is none. What is in it at last is published
// in the status of the pod.

import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  realpathSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Conflist } from '../chain/config/conflist.ts';
import type { Attachment } from '../chain/run/runtime.ts';
import { DEVICE_INFO_CAPABILITY, findDeviceInfoProblem } from '../cni/device-info.ts';
import { argOf, podNamedIn } from '../cni/env.ts';
import { CniError, ErrorCode, invalidConfig } from '../cni/errors.ts';
import { defined, type JsonObject, parseObject } from '../cni/json.ts';
import { putFile, removeFile } from '../files/put-file.ts';
import type { Device } from './cluster.ts';
import type { Pod, RunnerOptions } from './runner.ts';
import type { WantedNetwork } from './wanted.ts';

/** A network that may get a device. */
interface Receiver {
  readonly label: string;
  /** That its definition names. */
  readonly resource: string | undefined;
  /** Device that the pod names. */
  readonly named: string | undefined;
}

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
      throw invalidConfig(`Cannot find a device for network "${label}": ${why}`);
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
  return invalidConfig(`Cannot give a device of "${resource}" to network "${label}": ${why}`, {
    details: has,
  });
}

function cannotGive(label: string, id: string, why: string, details?: string): CniError {
  const message = `Cannot give device ${JSON.stringify(id)} to network "${label}": ${why}`;
  return invalidConfig(message, defined({ details }));
}

interface Network {
  readonly list: Conflist;
  readonly attachment: Attachment;
  readonly device?: Device;
}

/** Bytes: all annotations of a pod may have 256 KiB together. */
const MAX_BYTES = 64 * 1024;

/** The capability argument with the file of a network. */
export function deviceInfoArg(
  dir: string,
  list: Conflist,
  id: Pick<Attachment, 'containerId' | 'ifname'>,
): JsonObject {
  return { [DEVICE_INFO_CAPABILITY]: join(dir, 'cni', nameOf(list, id)) };
}

/**
 * Copies what the device plugin wrote to the network's own file. An earlier file of that name is removed.
 * @throws CniError 7 for a file that is too large, no device information, or behind a link; 5 when it cannot be written
 */
export function placeDeviceInfo({ list, attachment, device }: Network): void {
  const file = ownFile(list, attachment);
  if (file === undefined) return;
  removeFile(file, 'device information');
  if (device === undefined) return;
  const name = `${device.resource}-${device.id}-device.json`.replaceAll('/', '-');
  const text = readText(join(dirname(dirname(file)), 'dp', name));
  if (text === undefined) return;
  const dir = dirname(file);
  mkdirSync(dir, { recursive: true, mode: 0o755 });
  if (realpathSync(dir) !== withoutRunLink(dir)) throw unusable(file, BEHIND_LINK);
  putFile(file, text, { what: 'device information' });
}

/**
 * What is in the network's file, after its ADD.
 * @throws CniError as {@link placeDeviceInfo}
 */
export function readDeviceInfo({ list, attachment }: Network): JsonObject | undefined {
  const file = ownFile(list, attachment);
  const text = file && readText(file);
  return text ? parseObject(text, `device information "${file}"`) : undefined;
}

/** To be called when the network is gone. @throws CniError 5 */
export function removeDeviceInfo({ list, attachment }: Network): void {
  const file = ownFile(list, attachment);
  if (file !== undefined) removeFile(file, 'device information');
}

/** Undefined for a network without, and for a file that the caller named. */
function ownFile(list: Conflist, attachment: Attachment): string | undefined {
  const file = attachment.capabilityArgs?.[DEVICE_INFO_CAPABILITY];
  return typeof file === 'string' && basename(file) === nameOf(list, attachment) ? file : undefined;
}

/** As in multus. */
function nameOf(
  { name }: Conflist,
  { containerId, ifname }: Pick<Attachment, 'containerId' | 'ifname'>,
): string {
  return `${name}-${containerId}_${ifname}`;
}

const BEHIND_LINK = 'there is a symbolic link in its path';

/** Text of a file that holds device information; undefined if there is none. What other programs put there may be anything. */
function readText(file: string): string | undefined {
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    throw code === 'ELOOP' ? unusable(file, BEHIND_LINK) : unusable(file, message, ErrorCode.ioFailure);
  }
  try {
    const found = fstatSync(fd);
    if (!found.isFile()) throw unusable(file, 'it is not a regular file');
    if (found.size > MAX_BYTES) throw unusable(file, `it has ${found.size} bytes, more than ${MAX_BYTES}`);
    if (readlinkSync(`/proc/self/fd/${fd}`) !== withoutRunLink(file)) throw unusable(file, BEHIND_LINK);
    const text = readFileSync(fd, 'utf8');
    const problem = findDeviceInfoProblem(parseObject(text, `device information "${file}"`));
    if (problem !== undefined) throw unusable(file, problem);
    return text;
  } finally {
    closeSync(fd);
  }
}

/** The link from `/var/run` is that of the distribution. */
function withoutRunLink(path: string): string {
  return path.startsWith('/var/run/') ? join(realpathSync('/var/run'), path.slice('/var/run'.length)) : path;
}

function unusable(file: string, problem: string, code: number = ErrorCode.invalidConfig): CniError {
  return new CniError(code, `Cannot use device information "${file}": ${problem}`);
}
