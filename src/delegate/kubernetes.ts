// What does the Kubernetes API say of definitions and pods, and how is it told what a pod got?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import type { ApiServer, ClusterAccess } from './api-server.ts';
import { definitionsOf, type NetworkDefinition } from './definition-file.ts';
import type { NetworkStatus } from './network-status.ts';

/** A pod, as far as it matters here. */
export interface KubernetesPod {
  readonly uid: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A cluster. Every call throws CniError 11 when it cannot be reached or is busy. */
export interface Cluster {
  /** Undefined when there is none. */
  findDefinition(namespace: string, name: string): Promise<NetworkDefinition | undefined>;
  /**
   * Undefined when there is none.
   * @param uid that the caller expects: what is known of another one need not be told
   */
  findPod(namespace: string, name: string, uid?: string): Promise<KubernetesPod | undefined>;
  /** Writes the annotation, or takes it away; nothing else of the pod is touched. */
  setStatus(namespace: string, name: string, status: readonly NetworkStatus[] | undefined): Promise<void>;
}

const STATUS_ANNOTATION = 'k8s.v1.cni.cncf.io/network-status';

/** Where definitions are. */
export const DEFINITIONS = 'network-attachment-definitions';
export const DEFINITIONS_API = 'apis/k8s.cni.cncf.io/v1';

/**
 * The cluster that is configured; nothing is asked yet.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export async function openCluster(access: ClusterAccess): Promise<Cluster> {
  const { openApiServer } = await import('./api-server.ts');
  return clusterAt(openApiServer(access));
}

/** What an API server says, asked each time. */
export function clusterAt(server: ApiServer): Cluster {
  return {
    async findDefinition(namespace, name) {
      const path = `${DEFINITIONS_API}/namespaces/${enc(namespace)}/${DEFINITIONS}/${enc(name)}`;
      const [found] = definitionsOf(await server.ask('GET', path));
      return found;
    },
    async findPod(namespace, name) {
      const pod = await server.ask('GET', podPath(namespace, name));
      return pod && podOf(pod);
    },
    async setStatus(namespace, name, status) {
      const text = status === undefined ? null : JSON.stringify(status, null, 4);
      const patch = { metadata: { annotations: { [STATUS_ANNOTATION]: text } } };
      const patched = await server.ask('PATCH', `${podPath(namespace, name)}/status`, patch);
      if (patched !== undefined || status === undefined) return;
      throw new CniError(
        ErrorCode.unknownContainer,
        `Cannot write network status of pod "${namespace}/${name}": there is no such pod`,
      );
    },
  };
}

/** What matters of a pod. */
export function podOf({ metadata }: JsonObject): KubernetesPod {
  const { uid, annotations } = isObject(metadata) ? metadata : {};
  const texts = Object.entries(isObject(annotations) ? annotations : {});
  return {
    uid: typeof uid === 'string' ? uid : '',
    annotations: Object.fromEntries(
      texts.filter((one): one is [string, string] => typeof one[1] === 'string'),
    ),
  };
}

function podPath(namespace: string, name: string): string {
  return `api/v1/namespaces/${enc(namespace)}/pods/${enc(name)}`;
}

function enc(part: string): string {
  return encodeURIComponent(part);
}
