// Is the runtime's pod the one that the cluster knows, and which networks does it want?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { Cluster, KubernetesPod } from './kubernetes.ts';
import type { NetworkStatus } from './network-status.ts';
import { argOf, namespaceOf, type Pod } from './options.ts';
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
  const place = placeOf(pod);
  if (place === undefined || pod.capabilityArgs[ANNOTATIONS_CAPABILITY] !== undefined) return undefined;
  const { namespace, name } = place;
  const uid = argOf(pod, 'K8S_POD_UID');
  const found = await (await cluster()).findPod(namespace, name, uid);
  const problem = findProblem(found, uid);
  if (problem !== undefined) {
    const text = `Cannot attach pod "${namespace}/${name}": ${problem}`;
    throw new CniError(ErrorCode.tryAgainLater, text);
  }
  return found?.annotations;
}

/**
 * Writes or removes the network status of the pod. Does nothing for a container that is not a Kubernetes pod.
 * @throws CniError 11 when the cluster cannot be reached, 3 when the pod is gone
 */
export async function publishStatus(
  cluster: () => Promise<Cluster>,
  pod: Pod,
  status: readonly NetworkStatus[] | undefined,
): Promise<void> {
  const place = placeOf(pod);
  if (place) await (await cluster()).setStatus(place.namespace, place.name, status);
}

/** Namespace and name of a Kubernetes pod; undefined for any other container. */
export function placeOf(pod: Pick<Pod, 'args'>): { namespace: string; name: string } | undefined {
  const [namespace, name] = [namespaceOf(pod), argOf(pod, 'K8S_POD_NAME')];
  return namespace && name ? { namespace, name } : undefined;
}

function findProblem(found: KubernetesPod | undefined, uid: string | undefined): string | undefined {
  if (found === undefined) return 'the cluster has no such pod';
  const source = found.annotations[SOURCE_ANNOTATION];
  const isStatic = source !== undefined && source !== 'api';
  if (!uid || isStatic || found.uid === uid) return undefined;
  return `the cluster has one with uid "${found.uid}", not "${uid}"`;
}
