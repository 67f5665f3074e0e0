// In which namespace does a container run, and how is that known?
//
// A path outlives its namespace. Our record names the namespace itself, so it is asked first. A cached result names only the path, so
// there the container's interface has to be in it, with the hardware address and an address that its ADD reported: after a reboot
// another container may have the same path, interface and address.

import { compareNetns, identifyNetns, type NetnsIdentity } from '../../attachments/netns-identity.ts';
import { findNetns } from '../../attachments/store.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../../cni/json.ts';
import { type Inside, readInside } from '../../node/devices.ts';
import type { RecordedAttachment } from '../../node/facts.ts';
import type { KnownContainer } from './container.ts';

/** The namespace of a container. */
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
  const paths = [...new Set(container.attachments.map(({ known }) => `"${known.netns}"`))].join(', ');
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
function isRecorded({ known, record }: RecordedAttachment): boolean {
  return record?.netnsIdentity !== undefined && known.file !== undefined;
}

function placeBy(one: RecordedAttachment, { env }: ChainRuntime): ContainerPlace | undefined {
  const { known } = one;
  const { netns, ifname } = known;
  const record = isRecorded(one) ? one.record : undefined;
  if (record && findNetns(record, env, netns) !== 'same') return undefined;
  const identity = record ?? identifyNetns(netns);
  if (identity.netnsIdentity === undefined) return undefined;
  const inside = readInside(netns);
  if (inside === undefined) return undefined;
  const isShown = record !== undefined || hasPromised(inside.get(ifname), ifname, known.result);
  // What was read is of the namespace that was identified.
  return isShown && compareNetns(netns, identity) === 'same' ? { netns, identity, inside } : undefined;
}

/**
 * Whether an interface is the one of a result: it has an address of it and, if the result tells it, its hardware address. Results up
 * to 0.2.0 have one address of each family.
 */
function hasPromised(
  inside: Inside | undefined,
  ifname: string,
  result: RecordedAttachment['known']['result'],
): boolean {
  if (inside === undefined || result === undefined) return false;
  const mac = listIn(result, 'interfaces').find(one => one.name === ifname && one.sandbox)?.mac;
  if (typeof mac === 'string' && mac.toLowerCase() !== inside.device.mac) return false;
  const listed = listIn(result, 'ips').map(one => one.address);
  const older = ['ip4', 'ip6'].map(key => {
    const one = memberOf(result, key);
    return isObject(one) ? one.ip : undefined;
  });
  return [...listed, ...older].some(
    text => typeof text === 'string' && inside.device.addresses.includes(text),
  );
}

function listIn(result: JsonObject, key: string): JsonObject[] {
  const list = memberOf(result, key);
  return Array.isArray(list) ? list.filter(isObject) : [];
}
