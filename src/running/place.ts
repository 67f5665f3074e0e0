// In which namespace does a container run, and how is that known?
//
// A path outlives its namespace. Our record names the namespace itself; a cached result names only the path, so there the container's
// interface has to be in it, with an address that its ADD reported.

import type { ChainRuntime } from '../chain/run/runtime.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, memberOf } from '../cni/json.ts';
import { isOfEarlierBoot } from '../journal/boot.ts';
import { compareNetns, identifyNetns, type NetnsIdentity } from '../journal/netns-identity.ts';
import { type Inside, readInside } from '../node/inside.ts';
import type { RecordedAttachment } from '../node/on-record.ts';
import { closeNetns, openOwnNetns } from '../sys/netns.ts';
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
  for (const one of container.attachments.filter(({ unsettled }) => unsettled === undefined)) {
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

function placeBy(
  { known, record, cacheFile }: RecordedAttachment,
  { env }: ChainRuntime,
): ContainerPlace | undefined {
  const { netns, ifname } = known;
  // Its runtime has deleted it, and knows nothing of our record.
  if (record?.adopted === true && cacheFile === undefined) return undefined;
  const isRecorded = record !== undefined && known.file !== undefined && record.netnsIdentity !== undefined;
  if (isRecorded && isOfEarlierBoot(record, env)) return undefined;
  const identity = isRecorded ? record : identifyNetns(netns);
  if (identity.netnsIdentity === undefined || compareNetns(netns, identity) !== 'same') return undefined;
  const host = openOwnNetns();
  try {
    const inside = readInside(netns, host);
    if (inside === undefined) return undefined;
    const isShown = isRecorded || hasPromised(inside.get(ifname), known.result);
    // What was read is of the namespace that was identified.
    return isShown && compareNetns(netns, identity) === 'same' ? { netns, identity, inside } : undefined;
  } finally {
    closeNetns(host);
  }
}

/** Whether an interface has an address of a result. Results up to 0.2.0 have one address of each family. */
function hasPromised(inside: Inside | undefined, result: RecordedAttachment['known']['result']): boolean {
  if (inside === undefined || result === undefined) return false;
  const ips = memberOf(result, 'ips');
  const listed = (Array.isArray(ips) ? ips : []).map(one => (isObject(one) ? one.address : undefined));
  const older = ['ip4', 'ip6'].map(key => {
    const one = memberOf(result, key);
    return isObject(one) ? one.ip : undefined;
  });
  return [...listed, ...older].some(
    text => typeof text === 'string' && inside.device.addresses.includes(text),
  );
}
