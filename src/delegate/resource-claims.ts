// Which devices have drivers of dynamic resource allocation (DRA) given to a pod, under names of resources that definitions use?
//
// A pod names claims, and its status says which ResourceClaim object each is. The scheduler has noted there which devices of which drivers are
// allocated. What a device is called by plugins, and the resource that it belongs to, are attributes that its driver publishes in a
// ResourceSlice. A device without them is none for networks, such as a GPU.
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { describeIssue, type JsonObject } from '../cni/json.ts';
import { type ApiServer, listPages, NoSuchKind } from './api-server.ts';
import type { Device, KubeletPod } from './cluster.ts';

const API = 'apis/resource.k8s.io/v1';

/** Attributes as multus has them. */
const ID_ATTRIBUTE = 'k8s.cni.cncf.io/deviceID';
const RESOURCE_ATTRIBUTE = 'k8s.cni.cncf.io/resourceName';

const Named = z.object({ name: z.string() });
const Names = z.optional(z.array(Named));
const Container = z.object({ resources: z.optional(z.object({ claims: Names })) });
const PodObject = z.object({
  metadata: z.object({ uid: z.string() }),
  spec: z.object({
    nodeName: z.optional(z.string()),
    resourceClaims: Names,
    initContainers: z.optional(z.array(Container)),
    containers: z.optional(z.array(Container)),
  }),
  status: z.optional(
    z.object({
      resourceClaimStatuses: z.optional(
        z.array(z.object({ name: z.string(), resourceClaimName: z.optional(z.string()) })),
      ),
      /** Of a resource of a device plugin's kind that a driver provides. */
      extendedResourceClaimStatus: z.optional(z.object({ resourceClaimName: z.string() })),
    }),
  ),
});

const Allocated = z.object({ driver: z.string(), pool: z.string(), device: z.string() });
const ClaimObject = z.object({
  status: z.optional(
    z.object({
      allocation: z.optional(
        z.object({ devices: z.optional(z.object({ results: z.optional(z.array(Allocated)) })) }),
      ),
      reservedFor: z.optional(z.array(z.object({ resource: z.string(), uid: z.string() }))),
    }),
  ),
});

const Attribute = z.optional(z.object({ string: z.optional(z.string()) }));
const SliceObject = z.object({
  spec: z.object({
    driver: z.string(),
    pool: z.object({ name: z.string() }),
    devices: z.optional(
      z.array(
        z.object({
          name: z.string(),
          attributes: z.optional(z.object({ [ID_ATTRIBUTE]: Attribute, [RESOURCE_ATTRIBUTE]: Attribute })),
        }),
      ),
    ),
  }),
});

/**
 * The devices of a pod's claims in the order in which its containers name these; none, with one request, for a pod without claims.
 * @throws CniError 11 when the server cannot be reached, or a claim does not exist or is not allocated yet; 7 when the server has no such
 *   kind, or a claim has no devices, is not for this pod, or is not what this version can read
 */
export async function claimedDevices(server: ApiServer, pod: KubeletPod): Promise<Device[]> {
  const namespaced = (kind: string, name: string) =>
    `namespaces/${encodeURIComponent(pod.namespace)}/${kind}/${encodeURIComponent(name)}`;
  const found = await server.ask('GET', `api/v1/${namespaced('pods', pod.name)}`);
  if (found === undefined) throw refusal(pod, ErrorCode.tryAgainLater, 'the cluster has no such pod');
  const { metadata, spec, status } = read(pod, PodObject, found, 'the pod');
  const names = claimNames(pod, spec, status);
  if (names.length === 0) return [];
  const published = await listPublished(server, pod, spec.nodeName ?? '');
  const devices: (Device | undefined)[] = [];
  for (const name of names) {
    const claim = await server.ask('GET', `${API}/${namespaced('resourceclaims', name)}`);
    for (const { driver, pool, device } of allocatedBy(pod, name, claim, metadata.uid))
      devices.push(published.get(keyOf(driver, pool, device)));
  }
  return devices.filter(device => device !== undefined);
}

type PodParts = z.output<typeof PodObject>;

/** Names of the objects. A claim of a template has one only once that was made. */
function claimNames(pod: KubeletPod, spec: PodParts['spec'], status: PodParts['status']): string[] {
  const containers = [...(spec.initContainers ?? []), ...(spec.containers ?? [])];
  const asked = containers.flatMap(({ resources }) => resources?.claims ?? []);
  const claims = [...new Set([...asked, ...(spec.resourceClaims ?? [])].map(({ name }) => name))];
  const names = claims.map(claim => {
    const known = status?.resourceClaimStatuses?.find(({ name }) => name === claim);
    if (known) return known.resourceClaimName;
    throw refusal(
      pod,
      ErrorCode.tryAgainLater,
      `its status does not say which object its claim "${claim}" is`,
    );
  });
  // A claim that needs no object has none.
  const all = [...names, status?.extendedResourceClaimStatus?.resourceClaimName];
  return [...new Set(all.filter(name => name !== undefined))];
}

function allocatedBy(pod: KubeletPod, name: string, claim: JsonObject | undefined, uid: string) {
  const its = `its ResourceClaim "${name}"`;
  if (claim === undefined) throw refusal(pod, ErrorCode.tryAgainLater, `${its} does not exist`);
  const { allocation, reservedFor = [] } = read(pod, ClaimObject, claim, its).status ?? {};
  if (allocation === undefined) throw refusal(pod, ErrorCode.tryAgainLater, `${its} is not allocated`);
  // Anyone who may write the status of a pod could name the claim of another.
  if (!reservedFor.some(one => one.resource === 'pods' && one.uid === uid))
    throw refusal(pod, ErrorCode.invalidConfig, `${its} is not reserved for the pod`);
  const results = allocation.devices?.results ?? [];
  if (results.length === 0)
    throw refusal(pod, ErrorCode.invalidConfig, `${its} is allocated without devices`);
  return results;
}

/** By driver, pool and name, what the drivers of the node publish for networks. */
async function listPublished(server: ApiServer, pod: KubeletPod, node: string): Promise<Map<string, Device>> {
  const published = new Map<string, Device>();
  try {
    for await (const { items } of listPages(server, `${API}/resourceslices`, {
      fieldSelector: `spec.nodeName=${node}`,
    }))
      for (const item of items) {
        const { driver, pool, devices = [] } = read(pod, SliceObject, item, 'a ResourceSlice').spec;
        for (const { name, attributes } of devices) {
          const id = attributes?.[ID_ATTRIBUTE]?.string;
          const resource = attributes?.[RESOURCE_ATTRIBUTE]?.string;
          if (id && resource) published.set(keyOf(driver, pool.name, name), { resource, id });
        }
      }
  } catch (cause) {
    if (!(cause instanceof NoSuchKind)) throw cause;
    throw refusal(
      pod,
      ErrorCode.invalidConfig,
      'the pod has claims, and the cluster has no "resource.k8s.io/v1"',
    );
  }
  return published;
}

function keyOf(...parts: readonly string[]): string {
  return JSON.stringify(parts);
}

function read<T extends z.core.$ZodType>(
  pod: KubeletPod,
  kind: T,
  object: unknown,
  what: string,
): z.output<T> {
  const parsed = z.safeParse(kind, object, { reportInput: false });
  if (parsed.success) return parsed.data;
  const problem = parsed.error.issues.map(describeIssue).join('; ').slice(0, 500);
  throw refusal(pod, ErrorCode.invalidConfig, `${what} is not what this version can read`, problem);
}

function refusal({ namespace, name }: KubeletPod, code: number, why: string, details?: string): CniError {
  const message = `Cannot find the claimed devices of pod "${namespace}/${name}": ${why}`;
  return new CniError(code, message, details ? { details } : {});
}
