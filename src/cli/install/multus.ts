// What does multus on this node and in its cluster consist of, and would each pod get from the runner what it got from multus?

import { join } from 'node:path';
import type { PluginEntry } from '../../cni/conflist.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, parseObject } from '../../cni/json.ts';
import { type ApiServer, listPages, NoSuchKind } from '../../delegate/api-server.ts';
import type { NetworkDefinition } from '../../delegate/cluster.ts';
import { definitionsOf } from '../../delegate/find-network.ts';
import { DEFINITIONS, DEFINITIONS_API, podOf } from '../../delegate/kubernetes.ts';
import type { Pod, RunnerOptions } from '../../delegate/options.ts';
import { planNetworks, resolveNetwork } from '../../delegate/plan.ts';
import { DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, selectByName } from '../../delegate/selection.ts';
import { listConfigured, listWanted, type WantedNetwork } from '../../delegate/wanted.ts';
import { tryRead } from '../../files/read-file.ts';
import { type Candidate, readCandidates } from '../runtimes/rules.ts';

/** Multus as its own program, and as the client of its daemon. */
const TYPES = ['multus', 'multus-shim'];

/** The list by which a runtime calls multus. */
export interface MultusList {
  readonly file: string;
  readonly list: NonNullable<Candidate['list']>;
  readonly plugin: PluginEntry;
  readonly hasDaemon: boolean;
  /** Files that runtimes read before it. */
  readonly before: readonly string[];
}

/** @throws CniError 7 when no file has one; 5 when the directory cannot be read */
export async function findMultusList(confDir: string): Promise<MultusList> {
  const files = (await readCandidates(confDir)).filter(({ extension }) => extension !== undefined);
  const isMultus = ({ type }: PluginEntry) => TYPES.includes(type);
  const index = files.findIndex(({ list }) => list?.plugins.some(isMultus));
  const { list, path, name } = files[index] ?? {};
  const plugin = list?.plugins.find(isMultus);
  if (list && path !== undefined && name !== undefined && plugin) {
    const before = files.slice(0, index).map(one => one.name);
    return { file: path, list, plugin, hasDaemon: plugin.type !== 'multus', before };
  }
  const broken = files.flatMap(one => (one.broken ? [`"${one.name}": ${one.broken}`] : []));
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot switch from multus: no file of "${confDir}" calls a plugin of type ${TYPES.join(' or ')}; run this on a node with multus, or name the directory with --conf-dir`,
    { details: broken.join('; ') || `files there: ${files.map(one => one.name).join(', ') || 'none'}` },
  );
}

/** Where multus's manifest has the configuration of its daemon, and its name on a node that has it as a file. */
const DAEMON_CONFIG = {
  map: 'api/v1/namespaces/kube-system/configmaps/multus-daemon-config',
  key: 'daemon-config.json',
};

/**
 * What multus's daemon puts over every list.
 * @returns undefined if there is none
 * @throws CniError 6 when it is no JSON object; of the API server
 */
export async function readDaemonConfig(
  confDir: string,
  server: ApiServer | undefined,
): Promise<JsonObject | undefined> {
  const file = join(confDir, 'multus.d', DAEMON_CONFIG.key);
  const there = tryRead(file);
  if (there !== undefined) return parseObject(there, `"${file}"`);
  const map = await server?.ask('GET', DAEMON_CONFIG.map);
  const text = isObject(map?.data) ? map.data[DAEMON_CONFIG.key] : undefined;
  return typeof text === 'string'
    ? parseObject(text, `"${DAEMON_CONFIG.key}" of ${DAEMON_CONFIG.map}`)
    : undefined;
}

/** A pod that names networks. */
interface AskingPod {
  readonly namespace: string;
  readonly name: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** The objects of a cluster that a switch is about. */
export interface MultusCluster {
  readonly definitions: readonly (NetworkDefinition & { readonly namespace: string })[];
  readonly pods: readonly AskingPod[];
  /** Pools of whereabouts with the number of their addresses in use. */
  readonly pools: readonly { readonly name: string; readonly inUse: number }[];
  /** Multus's DaemonSets, and those of its controller of dynamic networks. */
  readonly daemonSets: readonly {
    readonly namespace: string;
    readonly name: string;
    readonly isController: boolean;
  }[];
  /** What could not be read. */
  readonly unread: readonly string[];
}

/** @throws CniError when the cluster cannot be reached, or refuses its pods or definitions */
export async function readMultusCluster(server: ApiServer): Promise<MultusCluster> {
  const unread: string[] = [];
  // The account of multus need not be allowed to read these.
  const optional = async <T>(path: string, take: (object: JsonObject) => T[]): Promise<T[]> =>
    listAll(server, path, take).catch(error => {
      if (error instanceof CniError && error.code === ErrorCode.tryAgainLater) throw error;
      if (!(error instanceof NoSuchKind)) unread.push(`${path}: ${(error as Error).message}`);
      return [];
    });
  return {
    definitions: await listAll(server, `${DEFINITIONS_API}/${DEFINITIONS}`, object =>
      definitionsOf({ kind: 'NetworkAttachmentDefinition', ...object }).map(one => ({
        ...one,
        namespace: one.namespace ?? 'default',
      })),
    ),
    pods: await listAll(server, 'api/v1/pods', askingPod),
    pools: await optional('apis/whereabouts.cni.cncf.io/v1alpha1/ippools', poolOf),
    daemonSets: await optional('apis/apps/v1/daemonsets', daemonSetOf),
    unread,
  };
}

async function listAll<T>(server: ApiServer, path: string, take: (object: JsonObject) => T[]): Promise<T[]> {
  const found: T[] = [];
  for await (const { items } of listPages(server, path)) found.push(...items.flatMap(take));
  return found;
}

function askingPod(object: JsonObject): AskingPod[] {
  const { annotations } = podOf(object);
  const { phase } = isObject(object.status) ? object.status : {};
  const asks = annotations[NETWORKS_ANNOTATION] || annotations[DEFAULT_NETWORK_ANNOTATION];
  if (!asks || phase === 'Succeeded' || phase === 'Failed') return [];
  return [{ ...placeOf(object), annotations }];
}

function poolOf(object: JsonObject): MultusCluster['pools'][number][] {
  const { allocations } = isObject(object.spec) ? object.spec : {};
  return [
    { name: placeOf(object).name, inUse: Object.keys(isObject(allocations) ? allocations : {}).length },
  ];
}

/** By its containers: manifests name the object as they like. */
function daemonSetOf(object: JsonObject): MultusCluster['daemonSets'][number][] {
  const text = JSON.stringify(isObject(object.spec) ? object.spec.template : {});
  const isController = text.includes('dynamic-networks-controller');
  return text.includes('multus') || isController ? [{ ...placeOf(object), isController }] : [];
}

function placeOf({ metadata }: JsonObject): { readonly namespace: string; readonly name: string } {
  const { namespace, name } = isObject(metadata) ? metadata : {};
  return { namespace: String(namespace ?? ''), name: String(name ?? '') };
}

/** What a plan of everything has shown. */
export interface Forecast {
  /** Why no pod at all could be attached on this node. */
  readonly defaultNetwork: string | undefined;
  /** Pods whose next ADD would fail, each with the error; and definitions that no pod can use. */
  readonly refused: readonly string[];
  readonly broken: readonly string[];
  /** Pods that name a device, and that name an IPAMClaim. */
  readonly naming: { readonly device: readonly string[]; readonly claim: readonly string[] };
  /** Definitions that multus gives what the runtime offers. */
  readonly offered: readonly string[];
}

/** Plans the networks of every pod as an ADD on this node would. Changes nothing. */
export async function forecast(
  options: RunnerOptions,
  { definitions, pods }: Pick<MultusCluster, 'definitions' | 'pods'>,
  capabilities: JsonObject,
): Promise<Forecast> {
  const planned = withDefinitions(options, definitions);
  const [first] = listConfigured(planned);
  const problem = first && (await problemOf(resolveNetwork(planned, first, 0)));
  const naming = { device: [] as string[], claim: [] as string[] };
  const refused: string[] = [];
  for (const pod of problem === undefined ? pods : []) {
    const name = `${pod.namespace}/${pod.name}`;
    const why = await problemOf(planPod(planned, pod, naming));
    if (why !== undefined) refused.push(`${name}: ${why}`);
  }
  const broken: string[] = [];
  const offered: string[] = [];
  for (const { namespace, name } of definitions) {
    const wanted = { selection: selectByName(name), namespace, byPod: true };
    try {
      const { list } = await resolveNetwork(planned, wanted, 1);
      const has = (key: string) => list.plugins.some(one => one.capabilities[key] === true);
      if (Object.keys(capabilities).some(key => capabilities[key] === true && has(key)))
        offered.push(`${namespace}/${name}`);
    } catch (error) {
      broken.push(`${namespace}/${name}: ${said(error)}`);
    }
  }
  return { defaultNetwork: problem, refused, broken, naming, offered };
}

/** The kubelet is not asked: which devices it gives a pod is the same afterwards. */
function withDefinitions(options: RunnerOptions, definitions: readonly NetworkDefinition[]): RunnerOptions {
  const known = new Map(
    definitions.map(({ resource: _, ...one }) => [`${one.namespace}/${one.name}`, one] as const),
  );
  const fetchDefinition = async (namespace: string, name: string) => known.get(`${namespace}/${name}`);
  return { ...options, places: { ...options.places, fetchDefinition } };
}

async function planPod(
  options: RunnerOptions,
  { namespace, name, annotations }: AskingPod,
  naming: { readonly device: string[]; readonly claim: string[] },
): Promise<void> {
  const args = [['K8S_POD_NAMESPACE', namespace] as const, ['K8S_POD_NAME', name] as const];
  const pod: Pod = { containerId: 'switch', netns: '', ifname: 'eth0', args, capabilityArgs: {} };
  const wanted = listWanted(options, pod, annotations);
  const byPod = wanted.filter(one => one.byPod).map(({ selection }) => selection);
  if (byPod.some(one => one.deviceId !== undefined)) naming.device.push(`${namespace}/${name}`);
  if (byPod.some(one => one.claim !== undefined)) naming.claim.push(`${namespace}/${name}`);
  await planNetworks(options, pod, wanted.map(withoutDevice));
}

function withoutDevice(wanted: WantedNetwork): WantedNetwork {
  return { ...wanted, selection: { ...wanted.selection, deviceId: undefined } };
}

async function problemOf(work: Promise<unknown>): Promise<string | undefined> {
  return work.then(
    () => undefined,
    error => said(error),
  );
}

function said(error: unknown): string {
  if (!(error instanceof CniError)) throw error;
  return error.details ? `${error.message} (${error.details})` : error.message;
}
