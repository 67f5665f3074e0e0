// How does the runner read definitions, pods and IPAMClaims from the Kubernetes API, and report a pod's networks?
import { invalidConfig } from '../cni/errors.ts';
import { isObject, type JsonObject, textsIn } from '../cni/json.ts';
import { type ApiServer, listPages, openApiServer } from './api-server.ts';
import type {
  Cluster,
  ClusterAccess,
  IpamClaim,
  KubernetesPod,
  NetworkStatus,
  PodMachine,
  PodOfMachine,
} from './cluster.ts';
import { definitionsOf } from './find-network.ts';

/** The present name of the annotation, and the one of before the specification had it, by which some readers still look. */
const STATUS_ANNOTATIONS = ['k8s.v1.cni.cncf.io/network-status', 'k8s.v1.cni.cncf.io/networks-status'];

export const DEFINITIONS = 'network-attachment-definitions';
export const DEFINITIONS_API = 'apis/k8s.cni.cncf.io/v1';

const CLAIMS_API = 'apis/k8s.cni.cncf.io/v1alpha1';
const CLAIMS = 'ipamclaims';

/** HTTP statuses: the object does not exist; it is another one or another version; the object is invalid for its kind. */
const NOT_FOUND = 404;
const CONFLICT = 409;
const UNPROCESSABLE = 422;

/**
 * The configured cluster; sends nothing yet.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export async function openCluster(access: ClusterAccess): Promise<Cluster> {
  return clusterAt(openApiServer(access));
}

/** A cluster that sends every call to the API server. */
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
    listClaimedDevices: async pod => (await import('./resource-claims.ts')).claimedDevices(server, pod),
    async findPodsOfMachine(namespace, machine) {
      const query = { labelSelector: `${MACHINE_LABEL}=${machine}` };
      const pods: PodOfMachine[] = [];
      for await (const { items } of listPages(server, `api/v1/namespaces/${enc(namespace)}/pods`, query))
        for (const item of items) {
          const { uid, annotations } = podOf(item);
          const { name } = isObject(item.metadata) ? item.metadata : {};
          pods.push({ uid, annotations, name: textOf(name), isOver: isOver(item) });
        }
      return pods;
    },
    async annotate(namespace, { name, uid }, annotations) {
      await patchStatus(server, podPath(namespace, name), { uid, annotations });
    },
    setStatus: (namespace, name, status, uid) =>
      patchStatus(server, podPath(namespace, name), { ...(uid ? { uid } : {}), ...statusPatch(status) }),
    replaceStatus: (namespace, name, { uid, version }, status) =>
      patchStatus(server, podPath(namespace, name), {
        uid,
        resourceVersion: version,
        ...statusPatch(status),
      }),
    async addEvent(namespace, event) {
      await server.ask('POST', `api/v1/namespaces/${enc(namespace)}/events`, event, [CONFLICT]);
    },
    async findClaim(namespace, name) {
      const found = await server.ask('GET', claimPath({ namespace, name }));
      return found && claimOf(found, { namespace, name });
    },
    fillClaim: (claim, ips, pod) => fillClaim(server, claim, ips, pod),
  };
}

/** The server refuses a patch that names another uid (422, since it cannot be changed, or 409) or version (409) than the pod has. */
async function patchStatus(server: ApiServer, pod: string, metadata: JsonObject): Promise<boolean> {
  return (
    (await server.ask('PATCH', `${pod}/status`, { metadata }, [NOT_FOUND, CONFLICT, UNPROCESSABLE])) !==
    undefined
  );
}

function statusPatch(status: readonly NetworkStatus[] | undefined): JsonObject {
  const text = status === undefined ? null : JSON.stringify(status, null, 4);
  return { annotations: Object.fromEntries(STATUS_ANNOTATIONS.map(name => [name, text])) };
}

async function fillClaim(
  server: ApiServer,
  claim: IpamClaim,
  ips: readonly string[],
  pod: string,
): Promise<IpamClaim> {
  const path = claimPath(claim);
  // The version makes the server refuse a write that would overwrite another pod's addresses.
  const metadata = { resourceVersion: claim.version };
  const patch = (status: JsonObject): JsonObject => ({ metadata, status });
  const filled =
    (await server.ask('PATCH', `${path}/status`, patch({ ips }), [NOT_FOUND, UNPROCESSABLE])) ??
    // Some versions of the kind require the name of the pod; for others it would have to be an object.
    (await server.ask('PATCH', `${path}/status`, patch({ ips, ownerPod: pod }), [NOT_FOUND])) ??
    // The kind may have been installed without the status subresource.
    (await server.ask('PATCH', path, patch({ ips })));
  if (filled) return claimOf(filled, claim);
  throw invalidConfig(`Cannot fill IPAMClaim "${claim.namespace}/${claim.name}": the claim no longer exists`);
}

function claimOf(
  { metadata, spec, status }: JsonObject,
  { namespace, name }: { readonly namespace: string; readonly name: string },
): IpamClaim {
  const { network, ipRequests } = isObject(spec) ? spec : {};
  const { ips } = isObject(status) ? status : {};
  const { resourceVersion, uid } = isObject(metadata) ? metadata : {};
  return {
    namespace,
    name,
    network: textOf(network),
    ips: textsOf(ips),
    requested: textsOf(ipRequests),
    uid: textOf(uid),
    version: textOf(resourceVersion),
  };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function textsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

export function podOf({ metadata, spec }: JsonObject): KubernetesPod {
  const { uid, annotations, labels, resourceVersion } = isObject(metadata) ? metadata : {};
  const texts = textsIn(annotations);
  const { nodeName } = isObject(spec) ? spec : {};
  const machine = machineOf(textsIn(labels), texts, textOf(nodeName));
  return {
    uid: textOf(uid),
    version: textOf(resourceVersion),
    annotations: texts,
    ...(machine && { machine }),
  };
}

/** KubeVirt's labels: the uid of the machine's instance, the migration that a pod was made for, and the node that it runs on. */
const MACHINE_LABEL = 'kubevirt.io/created-by';
const MIGRATION_LABEL = 'kubevirt.io/migrationJobUID';
const NODE_LABEL = 'kubevirt.io/nodeName';
/** Set on the new pod as soon as the machine runs there; the label follows when the migration is over. */
const READY_ANNOTATION = 'kubevirt.io/migration-target-ready-timestamp';

/** A new pod may have the label of the machine's node, which then names that of the former pod. */
function machineOf(
  {
    [MACHINE_LABEL]: uid,
    [MIGRATION_LABEL]: migration,
    [NODE_LABEL]: runsOn,
  }: Readonly<Record<string, string>>,
  { [READY_ANNOTATION]: ready }: Readonly<Record<string, string>>,
  node: string,
): PodMachine | undefined {
  if (!uid) return undefined;
  return { uid, isTarget: !!migration, isActive: !!ready || (!!runsOn && runsOn === node) };
}

function isOver({ status }: JsonObject): boolean {
  const { phase } = isObject(status) ? status : {};
  return phase === 'Succeeded' || phase === 'Failed';
}

function claimPath({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `${CLAIMS_API}/namespaces/${enc(namespace)}/${CLAIMS}/${enc(name)}`;
}

function podPath(namespace: string, name: string): string {
  return `api/v1/namespaces/${enc(namespace)}/pods/${enc(name)}`;
}

const enc = encodeURIComponent;
