// What does an event of a pod look like? (Kubernetes core/v1, Event)
import { createHash } from 'node:crypto';
import type { JsonObject } from '../cni/json.ts';
import type { KubernetesPod } from './kubernetes.ts';

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
