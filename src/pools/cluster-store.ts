// How are pools and blocks stored in the Kubernetes API?
import { isObject, type JsonObject, textsIn } from '../cni/json.ts';
import { type ApiServer, listPages } from '../delegate/api-server.ts';
import {
  API_VERSION,
  type ClaimKey,
  isSameMachine,
  KINDS,
  type NewObject,
  type ObjectKind,
  type ObjectStore,
  type StoredObject,
} from './held.ts';

/** HTTP statuses: there is none of that name; there is one, or it is another one or another version. */
const NOT_FOUND = 404;
const CONFLICT = 409;
const CLAIMS_API = 'apis/k8s.cni.cncf.io/v1alpha1';

export function clusterStore(server: ApiServer): ObjectStore {
  return {
    async find(kind, name) {
      const found = await server.ask('GET', pathOf(kind, name));
      return found && storedOf(found);
    },
    async *pages(kind, labels) {
      const labelSelector = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
      const query = labelSelector.length ? { labelSelector: labelSelector.join(',') } : {};
      for await (const { items } of listPages(server, pathOf(kind), query)) yield items.map(storedOf);
    },
    async create(kind, object) {
      const created = await server.ask('POST', pathOf(kind), wireOf(kind, object), [CONFLICT]);
      return created && storedOf(created);
    },
    async replace(kind, object) {
      const { name, version, uid } = object;
      const wire = wireOf(kind, object);
      const body = { ...wire, metadata: { ...(wire.metadata as JsonObject), uid, resourceVersion: version } };
      const replaced = await server.ask('PUT', pathOf(kind, name), body, [NOT_FOUND, CONFLICT]);
      return replaced && storedOf(replaced);
    },
    async remove(kind, { name, uid, version }) {
      const preconditions = { uid, ...(version === undefined ? {} : { resourceVersion: version }) };
      const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions };
      return (await server.ask('DELETE', pathOf(kind, name), body, [NOT_FOUND, CONFLICT])) !== undefined;
    },
    async hasNode(name, machine) {
      const found = await server.ask('GET', `api/v1/nodes/${encodeURIComponent(name)}`);
      if (found === undefined) return false;
      const { nodeInfo } = isObject(found.status) ? found.status : {};
      const { systemUUID, machineID } = isObject(nodeInfo) ? nodeInfo : {};
      return isSameMachine(machine, [systemUUID, machineID].filter(Boolean).join(' ').toLowerCase());
    },
    async revision() {
      const page = await server.ask('GET', `${pathOf('pools')}?limit=1`);
      const { resourceVersion } = isObject(page?.metadata) ? page.metadata : {};
      return Number.isSafeInteger(Number(resourceVersion)) ? Number(resourceVersion) : undefined;
    },
    async hasClaim({ namespace, name, uid }: ClaimKey) {
      const [space, own] = [namespace, name].map(encodeURIComponent);
      const found = await server.ask('GET', `${CLAIMS_API}/namespaces/${space}/ipamclaims/${own}`);
      return found !== undefined && storedOf(found).uid === uid;
    },
  };
}

function pathOf(kind: ObjectKind, name?: string): string {
  const collection = `apis/${API_VERSION}/${kind}`;
  return name === undefined ? collection : `${collection}/${encodeURIComponent(name)}`;
}

function wireOf(kind: ObjectKind, { name, labels, annotations, spec }: NewObject): JsonObject {
  return { apiVersion: API_VERSION, kind: KINDS[kind], metadata: { name, labels, annotations }, spec };
}

function storedOf({ metadata, spec }: JsonObject): StoredObject {
  const { name, uid, resourceVersion, labels, annotations } = isObject(metadata) ? metadata : {};
  return {
    name: String(name ?? ''),
    uid: String(uid ?? ''),
    version: String(resourceVersion ?? ''),
    labels: textsIn(labels),
    annotations: textsIn(annotations),
    spec: isObject(spec) ? spec : {},
  };
}
