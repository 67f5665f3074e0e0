// What is to be applied so that catena takes multus's place while its pods run, would each pod get what it got, and how does one go back?
import { basename, extname, join } from 'node:path';
import { listAttachments } from '../../attachments/store.ts';
import type { PluginEntry } from '../../chain/config/conflist.ts';
import { CniError, ErrorCode, invalidConfig } from '../../cni/errors.ts';
import { isObject, type JsonObject, parseObject } from '../../cni/json.ts';
import { type ApiServer, listPages, NoSuchKind, openApiServer } from '../../delegate/api-server.ts';
import { isInCluster, type NetworkDefinition } from '../../delegate/cluster.ts';
import { definitionsOf } from '../../delegate/find-network.ts';
import { DEFINITIONS, DEFINITIONS_API, podOf } from '../../delegate/kubernetes.ts';
import { planNetworks, resolveNetwork } from '../../delegate/plan.ts';
import type { Pod, RunnerOptions } from '../../delegate/runner.ts';
import { DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, selectByName } from '../../delegate/selection.ts';
import { listConfigured, listWanted, type WantedNetwork } from '../../delegate/wanted.ts';
import { tryRead } from '../../files/read-file.ts';
import { count, oneLine } from '../../lab/words.ts';
import { some } from '../../node/words.ts';
import type { CommandCall } from '../command.ts';
import { printOptionsOf } from '../commands/install.ts';
import { type Candidate, readCandidates } from '../runtimes/rules.ts';
import { daemonSet } from './daemon-set.ts';
import { kubeconfigIn } from './kubeconfig.ts';
import type { PrintOptions } from './print-options.ts';

/** A request to the cluster may take as long as one of the runner. */
const TIMEOUT_MS = 10_000;
interface Named {
  readonly namespace: string;
  readonly name: string;
}

/** Pods that are named in a line; the number of the others follows. */
const NAMED = 10;

export async function run(call: CommandCall): Promise<number> {
  call.out(await switchFromMultus(call, printOptionsOf(call)));
  return 0;
}

/**
 * The manifest of the DaemonSet with multus's list in our words; comments before it say what was found, what will differ, and the steps.
 * @throws CniError 7 without multus's list, or when it cannot be read; of the cluster
 */
async function switchFromMultus(call: CommandCall, options: PrintOptions): Promise<string> {
  const facts = await gather(call, options);
  const { found, entry, confName } = facts;
  const text = [
    ['What was found', foundLines(facts)],
    ['What will differ', differences(facts)],
    ['What to do', numbered(steps(facts, options))],
    ['The way back, with all pods running', numbered(wayBack(facts))],
  ] as const;
  const head = text.flatMap(([title, lines]) => ['', title, ...lines.map(line => `  ${line}`)]);
  const comment = [`A switch from multus to catena ${options.version}; nothing was changed.`, ...head, ''];
  const list = { name: found.list.name, text: `${JSON.stringify(listOf(found, entry), null, 2)}\n` };
  const replaced = found.hasDaemon ? { replaced: ['multus-shim'] } : {};
  const manifest = daemonSet({ ...options, withAccount: true, list, confName, ...replaced });
  return `${comment.map(asComment).join('\n')}\n${manifest}`;
}

/** A line of a comment: what a pod's annotation or a definition says must not go on as a part of the manifest. */
export function asComment(line: string): string {
  // For readers of YAML 1.1 these two end a line as well.
  return `# ${oneLine(line).replace(/[\u2028\u2029]/g, ' ')}`.trimEnd();
}

type Facts = Awaited<ReturnType<typeof gather>>;

async function gather(call: CommandCall, { confDir, binDir }: PrintOptions) {
  if (call.multus === undefined)
    throw new Error('Cannot read the list of multus: the plugins are not available');
  const { translate, optionsOf } = await call.multus();
  const found = await findMultusList(confDir);
  const server = openServer(call, found);
  const daemonConfig = found.hasDaemon ? await readDaemonConfig(confDir, server) : undefined;
  // What multus has read, and what catena will.
  const theirs: JsonObject = { ...found.plugin.conf, ...daemonConfig, type: found.plugin.type };
  const { entry, dropped } = translate(theirs, kubeconfigIn(confDir));
  const cluster = server && (await readMultusCluster(server));
  const runner = optionsOf(entry, found.list.name, found.list.version);
  const seen = await forecast(runner, cluster ?? { definitions: [], pods: [] }, capabilitiesOf(entry));
  const { attachments } = listAttachments({ cacheDir: String(entry.cniDir) });
  // Containers of this node that multus attached.
  const standing = new Set(attachments.map(({ containerId }) => containerId)).size;
  const confName = `${basename(found.file, extname(found.file))}-catena.conflist`;
  return { found, theirs, entry, dropped, cluster, seen, standing, confName, binDir, confDir };
}

function openServer(call: CommandCall, { plugin }: MultusList): ApiServer | undefined {
  const { kubeconfig: own } = plugin.conf;
  const kubeconfig = call.text('kubeconfig') ?? (typeof own === 'string' && own !== '' ? own : undefined);
  if (kubeconfig === undefined && !isInCluster(call.env)) return undefined;
  return openApiServer({ kubeconfig, timeoutMs: TIMEOUT_MS });
}

function listOf({ list, plugin }: MultusList, entry: JsonObject): JsonObject {
  const plugins = list.plugins.map(one => (one === plugin ? entry : one.conf));
  return { ...(JSON.parse(list.source) as JsonObject), plugins };
}

function capabilitiesOf({ capabilities }: JsonObject): JsonObject {
  return (capabilities ?? {}) as JsonObject;
}

function foundLines({ found, entry, cluster, standing }: Facts): string[] {
  const { file, list, hasDaemon, before } = found;
  return [
    `${file}: network "${list.name}", multus ${hasDaemon ? 'with its daemon' : 'without a daemon'}`,
    ...(before.length
      ? [`read before it, so that runtimes use the first of them: ${before.join(', ')}`]
      : []),
    `default network: ${String(entry.clusterNetwork ?? 'the first of "delegates"')}`,
    `${count(standing, 'container')} of this node that multus attached, by ${String(entry.cniDir)}/results`,
    ...(cluster
      ? clusterLines(cluster)
      : ['no cluster: multus names none; --kubeconfig names one, whose pods are then examined']),
  ];
}

function clusterLines({ definitions, pods, pools, daemonSets, unread }: MultusCluster): string[] {
  const used = pools.map(({ name, inUse }) => `${name} (${inUse} in use)`);
  return [
    `${count(definitions.length, 'NetworkAttachmentDefinition')}, ${count(pods.length, 'pod')} that name networks`,
    ...(used.length ? [`pools of whereabouts: ${some(used, NAMED)}; they stay as they are`] : []),
    ...daemonSets.map(({ namespace, name }) => `DaemonSet ${namespace}/${name}`),
    ...unread.map(what => `not read: ${what}`),
  ];
}

function differences({ entry, theirs, dropped, cluster, seen }: Facts): string[] {
  const { defaultNetwork, refused, broken, naming, offered } = seen;
  const withResource = (cluster?.definitions ?? [])
    .filter(({ resource }) => resource !== undefined)
    .map(one => `${one.namespace}/${one.name}`);
  const lines = [
    defaultNetwork && `no pod can be attached on this node, and none was examined: ${defaultNetwork}`,
    ...refused.map(one => `multus attaches this pod, and catena will refuse it: ${one}`),
    ...broken.map(one => `no pod can use this definition, with either: ${one}`),
    offered.length &&
      `what the runtime offers (${Object.keys(capabilitiesOf(entry)).join(', ')}) is for the default network; multus gives it to ${some(offered, NAMED)} as well, which "runtimeConfigFor": "all" in the list below keeps`,
    naming.device.length &&
      `a pod that names a device gets it only if the kubelet gave it to the pod: ${some(naming.device, NAMED)}`,
    naming.claim.length &&
      `catena requests the addresses of IPAMClaims, which multus ignores: ${some(naming.claim, NAMED)}`,
    withResource.length &&
      `devices go to networks in the order of the containers; a pod with too few is refused: ${some(withResource, NAMED)}`,
    theirs.readinessindicatorfile &&
      `until ${String(entry.readinessindicatorfile)} exists, a pod is refused at once with code 11, and tried again; multus waits 45 s`,
    dropped.length && `keys that have nothing to say here: ${dropped.join(', ')}`,
    cluster?.daemonSets.some(one => one.isController) &&
      'the controller of dynamic networks asks multus\'s daemon, which goes: "followAnnotations": true in the list below does its work, for pods that catena attached',
    theirs.logFile && `lines in ${String(entry.logFile)} are JSON`,
    'a failed DEL is an error and tried again, CHECK asks every network, and GC collects for every network',
  ];
  return lines.filter(line => typeof line === 'string' && line !== '') as string[];
}

function steps({ confName, confDir, entry, found, cluster }: Facts, { image }: PrintOptions): string[] {
  const sets = setsOf(cluster);
  return [
    `bring the image ${image} to every node: catena install --print containerfile`,
    'kubectl apply -f <this output>; kubectl rollout status -n kube-system daemonset/catena',
    `From then on catena attaches pods: runtimes read ${confDir}/${confName} first. Pods of multus run on; their DEL is catena's, which finds their networks in ${String(entry.cniDir)}. The plugins in the directory stay those that are there.`,
    `once catena is ready on every node, and not before: ${sets.map(set => `kubectl delete -n ${set.namespace} daemonset/${set.name}`).join('; ')}`,
    found.hasDaemon
      ? 'Its daemon removes its own list as it ends. Before catena is there, pods would get the default network alone.'
      : `${found.file} and its executable stay, for the way back.`,
  ];
}

/** Multus takes the first file that does not begin like its own for the default network: ours does. */
function wayBack({ found, confDir, confName, entry }: Facts): string[] {
  const remove = `on every node: rm ${confDir}/${confName}`;
  const drop = 'kubectl delete -n kube-system daemonset/catena (nodes keep its files and its list)';
  const again = "apply multus's manifest again, and wait until it is ready on every node";
  const order = found.hasDaemon
    ? [
        again,
        drop,
        `on every node: mv /opt/cni/bin/multus-shim.before-catena /opt/cni/bin/multus-shim, unless multus has written it again`,
        remove,
      ]
    : [drop, remove, again];
  return [
    ...order,
    `From then on multus attaches pods. Pods of catena run on; multus's DEL finds them in ${String(entry.cniDir)}, where catena notes them for it, and calls the plugins of the directory.`,
    'when no pod is left that catena attached, on every node: catena uninstall',
  ];
}

function setsOf(cluster: MultusCluster | undefined): readonly Named[] {
  return cluster?.daemonSets.length
    ? cluster.daemonSets
    : [{ namespace: 'kube-system', name: 'kube-multus-ds' }];
}

/** Numbers the steps; a sentence is about the step before it. */
function numbered(lines: readonly string[]): string[] {
  let step = 0;
  return lines.map(line => (/^[A-Z]|^\//.test(line) ? `   ${line}` : `${++step}. ${line}`));
}

/** Multus as its own program, and as the client of its daemon. */
const TYPES = ['multus', 'multus-shim'];

/** The list by which a runtime calls multus. */
interface MultusList {
  readonly file: string;
  readonly list: NonNullable<Candidate['list']>;
  readonly plugin: PluginEntry;
  readonly hasDaemon: boolean;
  /** Files that runtimes read before it. */
  readonly before: readonly string[];
}

/** @throws CniError 7 when no file has one; 5 when the directory cannot be read */
async function findMultusList(confDir: string): Promise<MultusList> {
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
  throw invalidConfig(
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
async function readDaemonConfig(
  confDir: string,
  server: ApiServer | undefined,
): Promise<JsonObject | undefined> {
  const { key, map } = DAEMON_CONFIG;
  const file = join(confDir, 'multus.d', key);
  const there = tryRead(file);
  if (there !== undefined) return parseObject(there, `"${file}"`);
  const found = await server?.ask('GET', map);
  const text = isObject(found?.data) ? found.data[key] : undefined;
  return typeof text === 'string' ? parseObject(text, `"${key}" of ${map}`) : undefined;
}

interface AskingPod extends Named {
  readonly annotations: Readonly<Record<string, string>>;
}

/** The objects of a cluster that a switch is about. */
type MultusCluster = Awaited<ReturnType<typeof readMultusCluster>>;

/** @throws CniError when the cluster cannot be reached, or refuses its pods or definitions */
async function readMultusCluster(server: ApiServer) {
  // What could not be read.
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
    // Pools of whereabouts.
    pools: await optional('apis/whereabouts.cni.cncf.io/v1alpha1/ippools', poolOf),
    // Multus's DaemonSets, and those of its controller of dynamic networks.
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

/** With the number of its addresses in use. */
function poolOf(object: JsonObject) {
  const { allocations } = isObject(object.spec) ? object.spec : {};
  const inUse = Object.keys(isObject(allocations) ? allocations : {}).length;
  return [{ name: placeOf(object).name, inUse }];
}

/** By its containers: manifests name the object as they like. */
function daemonSetOf(object: JsonObject) {
  const text = JSON.stringify(isObject(object.spec) ? object.spec.template : {});
  const isController = text.includes('dynamic-networks-controller');
  return text.includes('multus') || isController ? [{ ...placeOf(object), isController }] : [];
}

function placeOf({ metadata }: JsonObject): Named {
  const { namespace, name } = isObject(metadata) ? metadata : {};
  return { namespace: String(namespace ?? ''), name: String(name ?? '') };
}

/** Plans the networks of every pod as an ADD on this node would. Changes nothing. */
async function forecast(
  options: RunnerOptions,
  { definitions, pods }: Pick<MultusCluster, 'definitions' | 'pods'>,
  capabilities: JsonObject,
) {
  const planned = withDefinitions(options, definitions);
  const [first] = listConfigured(planned);
  const problem = first && (await problemOf(resolveNetwork(planned, first, 0)));
  // Pods that name a device, and that name an IPAMClaim.
  const naming = { device: [] as string[], claim: [] as string[] };
  // Pods whose next ADD would fail, each with the error.
  const refused: string[] = [];
  for (const pod of problem === undefined ? pods : []) {
    const name = `${pod.namespace}/${pod.name}`;
    const why = await problemOf(planPod(planned, pod, naming));
    if (why !== undefined) refused.push(`${name}: ${why}`);
  }
  // Definitions that no pod can use, and those that multus gives what the runtime offers.
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
  // Why no pod at all could be attached on this node.
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
  const withoutDevice = ({ selection, ...one }: WantedNetwork) => {
    return { ...one, selection: { ...selection, deviceId: undefined } };
  };
  await planNetworks(options, pod, wanted.map(withoutDevice));
}

function problemOf(work: Promise<unknown>): Promise<string | undefined> {
  return work.then(() => undefined, said);
}

function said(error: unknown): string {
  if (!(error instanceof CniError)) throw error;
  return error.details ? `${error.message} (${error.details})` : error.message;
}
