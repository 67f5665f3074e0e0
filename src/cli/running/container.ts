// Which running container does a word mean, and which namespace is it in?

import { pastOf } from '../../attachments/store.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import type { CniArgs } from '../../cni/env.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { objectsIn } from '../../cni/json.ts';
import { addressesTold } from '../../cni/result.ts';
import { namespacePath } from '../../files/read-file.ts';
import { type Inside, readInside } from '../../node/devices.ts';
import { type RecordedAttachment, readRecords } from '../../node/facts.ts';
import { namesOf, readStorageNames } from '../../node/names.ts';
import {
  compareNetns,
  findNetnsIdentity,
  identifyNetns,
  type NetnsIdentity,
} from '../../sys/netns-identity.ts';

/** A container with everything that is attached to it, by whichever runtime. */
export interface KnownContainer {
  readonly containerId: string;
  /** Never empty. */
  readonly attachments: readonly RecordedAttachment[];
  /** Names of interfaces that a delegate runner is giving it, or taking from it. */
  readonly inPod: readonly string[];
}

/**
 * Finds a container by its id, the beginning of its id, its namespace (a path, or a name of `ip netns`), its name or its pod
 * (`namespace/name`, or the name alone).
 * @param cwd against which relative paths are resolved
 * @throws CniError 3 if nothing on record is of such a container, or if there are several; 5 if records cannot be listed
 */
export function findKnown(given: string, cwd: string | undefined, runtime: ChainRuntime): KnownContainer {
  const { attachments, inPods } = readRecords(runtime);
  const found = FINDERS.map(find => find(attachments, given, cwd)).find(list => list.length > 0) ?? [];
  const ids = [...new Set(found.map(({ containerId }) => containerId))];
  const [containerId, ...others] = ids;
  const isOwn = (one: { readonly containerId: string }) => one.containerId === containerId;
  if (containerId !== undefined && others.length === 0)
    return {
      ...{ containerId, attachments: attachments.filter(isOwn) },
      inPod: inPods.filter(isOwn).map(({ ifname }) => ifname),
    };
  const why = others.length
    ? `there are ${ids.length} of them: ${ids.join(', ')}; use more of its id`
    : 'no attachment of it is on record, ours or of another runtime; catena ls shows which are';
  throw new CniError(ErrorCode.unknownContainer, `Cannot find container "${given}": ${why}`);
}

/**
 * The attachment that an interface, or a network to which the container is attached once, names.
 * @throws CniError 3 if there is none, or several
 */
export function pickAttachment(
  { containerId, attachments }: KnownContainer,
  given: string,
): RecordedAttachment {
  const byName = attachments.filter(({ ifname }) => ifname === given);
  const found = byName.length ? byName : attachments.filter(({ network }) => network === given);
  const [one, ...more] = found;
  if (one && more.length === 0) return one;
  const names = (list: readonly RecordedAttachment[]) =>
    list.map(({ network, ifname }) => `${network} ${ifname}`).join(', ');
  throw new CniError(
    ErrorCode.unknownContainer,
    one
      ? `Cannot choose between the attachments of container "${containerId}": ${names(found)}; name the interface`
      : `Cannot find interface or network "${given}" of container "${containerId}"; it has ${names(attachments)}`,
  );
}

/** Arguments of its first ADD that say which pod it is, for the plugins of further networks. */
export function podArgs({ attachments }: KnownContainer): CniArgs {
  const [first] = attachments.filter(({ args }) => args.length > 0);
  return first?.args.filter(([key]) => key === 'IgnoreUnknown' || key.startsWith('K8S_POD_')) ?? [];
}

type Find = (
  all: readonly RecordedAttachment[],
  given: string,
  cwd: string | undefined,
) => readonly RecordedAttachment[];

/** The most certain comes first. */
const FINDERS: readonly Find[] = [
  (all, given) => all.filter(({ containerId }) => containerId === given),
  (all, given) => {
    const storage = readStorageNames();
    return all.filter(one => {
      const { podNamespace, podName, containerName } = namesOf(one, storage);
      return containerName === given || (podName !== undefined && `${podNamespace}/${podName}` === given);
    });
  },
  (all, given, cwd) => (given === '' ? [] : inNamespace(all, namespacePath(given, cwd))),
  (all, given) => all.filter(one => namesOf(one, new Map()).podName === given),
  (all, given) => all.filter(({ containerId }) => given !== '' && containerId.startsWith(given)),
];

/** Another path may lead to the same namespace. */
function inNamespace(all: readonly RecordedAttachment[], path: string): RecordedAttachment[] {
  const identity = findNetnsIdentity(path);
  return all.filter(({ netns }) => {
    return netns === path || (identity !== undefined && findNetnsIdentity(netns) === identity);
  });
}

// A path outlives its namespace. Our record names the namespace itself, so it is asked first. A cached result names only the path, so
// there the container's interface has to be in it, with the hardware address and an address that its ADD reported: after a reboot
// another container may have the same path, interface and address.

export interface ContainerPlace {
  readonly netns: string;
  readonly identity: NetnsIdentity;
  /** Its interfaces, by name. */
  readonly inside: ReadonlyMap<string, Inside>;
}

/**
 * The namespace in which the container's attachments are.
 * @throws CniError 8 if it is gone or cannot be told from that of a later container; 4 if it is the host's
 */
export function findPlace(container: KnownContainer, runtime: ChainRuntime): ContainerPlace {
  const settled = container.attachments.filter(({ unsettled }) => unsettled === undefined);
  for (const one of settled.toSorted((a, b) => Number(isRecorded(b)) - Number(isRecorded(a)))) {
    const place = placeBy(one, runtime);
    if (place) return place;
  }
  const paths = [...new Set(container.attachments.map(({ netns }) => `"${netns}"`))].join(', ');
  throw new CniError(
    ErrorCode.invalidNetns,
    `Cannot enter the namespace of container "${container.containerId}": ${paths} is gone, is the host's own, or is no longer that of its ADD`,
  );
}

/** @throws CniError 8 if the path now refers to another namespace, or none */
export function checkPlace({ containerId }: KnownContainer, { netns, identity }: ContainerPlace): void {
  const now = compareNetns(netns, identity);
  if (now === 'same') return;
  throw new CniError(
    ErrorCode.invalidNetns,
    `Cannot change the networks of container "${containerId}": it has ended: "${netns}" ${now === 'gone' ? 'no longer exists' : 'is another namespace'}`,
  );
}

/** Whether our record says in which namespace it was made. */
function isRecorded({ netnsIdentity }: RecordedAttachment): boolean {
  return netnsIdentity !== undefined;
}

function placeBy(one: RecordedAttachment, { env }: ChainRuntime): ContainerPlace | undefined {
  const { netns, ifname, result } = one;
  if (pastOf(one, env).netns() !== 'same') return undefined;
  const identity = isRecorded(one) ? one : identifyNetns(netns);
  if (identity.netnsIdentity === undefined) return undefined;
  const inside = readInside(netns);
  if (inside === undefined) return undefined;
  const isShown = isRecorded(one) || hasPromised(inside.get(ifname), ifname, result);
  // What was read is of the namespace that was identified.
  return isShown && compareNetns(netns, identity) === 'same' ? { netns, identity, inside } : undefined;
}

/** Whether an interface is the one of a result: it has an address of it and, if the result tells it, its hardware address. */
function hasPromised(
  inside: Inside | undefined,
  ifname: string,
  result: RecordedAttachment['result'],
): boolean {
  if (inside === undefined || result === undefined) return false;
  const mac = objectsIn(result, 'interfaces').find(one => one.name === ifname && one.sandbox)?.mac;
  if (typeof mac === 'string' && mac.toLowerCase() !== inside.device.mac) return false;
  return addressesTold(result).some(text => inside.device.addresses.includes(text));
}
