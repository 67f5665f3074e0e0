// What is told of a pod in events, and what does one look like? (Kubernetes core/v1, Event)

import { createHash } from 'node:crypto';
import { type CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import type { Cluster, KubernetesPod, NetworkStatus } from './cluster.ts';

/** What is to be said. */
export interface Said {
  /** In CamelCase, for programs. */
  readonly reason: string;
  /** For people. */
  readonly message: string;
  /** What it is about: the same said twice about the same is one event. */
  readonly about: string;
  /** A warning unless given. */
  readonly type?: 'Normal' | 'Warning';
}

/** Longest message that the API accepts. */
const MAX_MESSAGE = 1024;

/** An event of a pod. Its name follows from its content, so the API server refuses to repeat it. */
export function eventOf(
  { namespace, name }: { readonly namespace: string; readonly name: string },
  { uid }: Pick<KubernetesPod, 'uid'>,
  { reason, message, about, type = 'Warning' }: Said,
): JsonObject {
  const mark = createHash('sha256')
    .update(JSON.stringify([uid, reason, message, about]))
    .digest('hex');
  const now = `${new Date().toISOString().slice(0, 19)}Z`;
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { namespace, name: `${name.slice(0, 230)}.${mark.slice(0, 16)}` },
    involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    type,
    reason,
    message: message.slice(0, MAX_MESSAGE),
    count: 1,
    firstTimestamp: now,
    lastTimestamp: now,
    source: { component: 'catena' },
    reportingComponent: 'catena',
    reportingInstance: 'catena',
  };
}

/** A pod in its cluster. */
export interface ToldPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/**
 * Tells the cluster of a pod, all at the same time.
 * @param warn gets why something could not be told: no verb fails for it
 */
export async function tellCluster(
  { addEvent }: Pick<Cluster, 'addEvent'>,
  pod: ToldPod,
  said: readonly Said[],
  warn: (message: string, fields: { error: string }) => void,
): Promise<void> {
  const tell = (one: Said) => addEvent(pod.namespace, eventOf(pod, pod, one));
  for (const { reason } of (await Promise.allSettled(said.map(tell))).filter(
    one => one.status === 'rejected',
  ))
    warn('cannot report an event to the cluster', { error: String(reason) });
}

/** Reasons and words of multus. A network without interface and address is not told of. */
export function attachedEvents(status: readonly NetworkStatus[]): Said[] {
  return status.flatMap(({ name, interface: ifname, ips = [] }) => {
    if (ifname === undefined) return [];
    const message = `Add ${ifname} [${ips.join(' ')}] from ${name}`;
    return { reason: 'AddedInterface', type: 'Normal', message, about: '' };
  });
}

/**
 * A failure, in the words of its error. None for code 11: the runtime tries again, and a cluster that cannot be reached cannot be told
 * either.
 */
export function failureEvents(reason: string, { code, message, details }: CniError, about: string): Said[] {
  if (code === ErrorCode.tryAgainLater) return [];
  return [{ reason, message: details ? `${message} (${details})` : message, about }];
}
