// Is the runtime's pod the one that the cluster knows, which networks does it want, and what is told of it?

import { createHash } from 'node:crypto';
import { NetworkNotFound } from '../chain/config/load.ts';
import { argOf, podNamedIn } from '../cni/env.ts';
import { CniError, ErrorCode, toCniError, tryAgainLater } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import type { Cluster, KubeletPod, KubernetesPod, NetworkStatus } from './cluster.ts';
import type { AddOutcome, Pod, Runner } from './runner.ts';
import { ANNOTATIONS_CAPABILITY } from './wanted.ts';

/** Set on pods that are declared on the node itself, not by the API server; their uid differs between the two. */
const SOURCE_ANNOTATION = 'kubernetes.io/config.source';

/**
 * Annotations of the pod, unless the runtime has passed them already; undefined for a container that is not a Kubernetes pod.
 * @throws CniError 11 when the cluster does not know the pod yet, or knows a different one of that name
 */
export async function fetchAnnotations(
  cluster: () => Promise<Cluster>,
  pod: Pod,
): Promise<Readonly<Record<string, string>> | undefined> {
  const place = podNamedIn(pod);
  if (place === undefined || pod.capabilityArgs[ANNOTATIONS_CAPABILITY] !== undefined) return undefined;
  const { namespace, name } = place;
  const uid = argOf(pod, 'K8S_POD_UID');
  const found = await (await cluster()).findPod(namespace, name, uid);
  const problem = findProblem(found, uid);
  if (problem !== undefined) throw tryAgainLater(`Cannot attach pod "${namespace}/${name}": ${problem}`);
  return found?.annotations;
}

/**
 * Writes or removes the network status of the pod, and of no other one of its name. Does nothing for a container that is not a
 * Kubernetes pod.
 * @throws CniError 11 when the cluster cannot be reached, or has another pod of that name; 3 when the pod is gone
 */
export async function publishStatus(
  cluster: () => Promise<Cluster>,
  pod: Pod,
  status: readonly NetworkStatus[] | undefined,
): Promise<void> {
  const place = podNamedIn(pod);
  if (place === undefined) return;
  const { namespace, name } = place;
  const uid = argOf(pod, 'K8S_POD_UID');
  const api = await cluster();
  if (await api.setStatus(namespace, name, status, uid)) return;
  const found = await api.findPod(namespace, name, uid);
  if (found && isStatic(found) && (await api.setStatus(namespace, name, status, found.uid))) return;
  if (status === undefined) return;
  const what = `Cannot write network status of pod "${namespace}/${name}"`;
  if (found === undefined) throw new CniError(ErrorCode.unknownContainer, `${what}: there is no such pod`);
  throw tryAgainLater(`${what}: ${findProblem(found, uid) ?? 'the API server refused it'}`);
}

/** Tells the cluster what became of an ADD, under the reasons of multus where it has one. Never throws. */
export async function tellOutcome(
  cluster: () => Promise<Cluster>,
  pod: Pod,
  outcome: AddOutcome,
  warn: Runner['warn'],
): Promise<void> {
  const [place, uid] = [podNamedIn(pod), argOf(pod, 'K8S_POD_UID')];
  if (place === undefined || !uid) return;
  const said = 'attached' in outcome ? attachedEvents(outcome.attached) : failureOf(outcome.failure);
  if (said.length === 0) return;
  try {
    await tellCluster(await cluster(), { ...place, uid }, said, warn);
  } catch {
    // Without a usable configuration of the cluster: that is why ADD has failed.
  }
}

function failureOf(error: unknown): ReturnType<typeof failureEvents> {
  const isMissing = error instanceof NetworkNotFound;
  return failureEvents(isMissing ? 'NoNetworkFound' : 'NetworksNotAdded', toCniError(error), '');
}

function findProblem(found: KubernetesPod | undefined, uid: string | undefined): string | undefined {
  if (found === undefined) return 'the cluster has no such pod';
  if (!uid || isStatic(found) || found.uid === uid) return undefined;
  return `the cluster has one with uid "${found.uid}", not "${uid}"`;
}

function isStatic({ annotations }: KubernetesPod): boolean {
  const source = annotations[SOURCE_ANNOTATION];
  return source !== undefined && source !== 'api';
}

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
  { namespace, name }: Pick<KubeletPod, 'namespace' | 'name'>,
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

/**
 * Tells the cluster of a pod, all at the same time.
 * @param warn gets why something could not be told: no verb fails for it
 */
export async function tellCluster(
  { addEvent }: Pick<Cluster, 'addEvent'>,
  pod: KubeletPod & { readonly uid: string },
  said: readonly Said[],
  warn: (message: string, fields: { error: string }) => void,
): Promise<void> {
  const tell = (one: Said) => addEvent(pod.namespace, eventOf(pod, pod, one));
  for (const one of await Promise.allSettled(said.map(tell)))
    if (one.status === 'rejected')
      warn('cannot report an event to the cluster', { error: String(one.reason) });
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
