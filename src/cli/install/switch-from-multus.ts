// What is to be applied, and in which order, so that catena takes multus's place while its pods run, and how does one go back?
import { basename, extname } from 'node:path';
import { listAttachments } from '../../attachments/store.ts';
import type { JsonObject } from '../../cni/json.ts';
import { type ApiServer, openApiServer } from '../../delegate/api-server.ts';
import { isInCluster } from '../../delegate/cluster.ts';
import { count } from '../../lab/words.ts';
import { some } from '../../node/words.ts';
import type { CommandCall } from '../command.ts';
import { printOptionsOf } from '../commands/install.ts';
import { daemonSet } from './daemon-set.ts';
import { kubeconfigIn } from './kubeconfig.ts';
import {
  type Forecast,
  findMultusList,
  forecast,
  type MultusCluster,
  type MultusList,
  readDaemonConfig,
  readMultusCluster,
} from './multus.ts';
import type { PrintOptions } from './print-options.ts';

/** A request to the cluster may take as long as one of the runner. */
const TIMEOUT_MS = 10_000;
/** Pods that are named in a line; the number of the others follows. */
const NAMED = 10;

/** Prints it. */
export async function run(call: CommandCall): Promise<number> {
  call.out(await switchFromMultus(call, printOptionsOf(call)));
  return 0;
}

/**
 * The manifest of the DaemonSet with multus's list in our words; comments before it say what was found, what will differ, and the steps.
 * @throws CniError 7 without multus's list, or when it cannot be read; of the cluster
 */
async function switchFromMultus(call: CommandCall, options: PrintOptions): Promise<string> {
  const { confDir, binDir } = options;
  if (call.multus === undefined)
    throw new Error('Cannot read the list of multus: the plugins are not available');
  const { translate, optionsOf } = await call.multus();
  const found = await findMultusList(confDir);
  const server = openServer(call, found);
  const daemonConfig = found.hasDaemon ? await readDaemonConfig(confDir, server) : undefined;
  const theirs = { ...found.plugin.conf, ...daemonConfig, type: found.plugin.type };
  const { entry, dropped } = translate(theirs, kubeconfigIn(confDir));
  const cluster = server && (await readMultusCluster(server));
  const runner = optionsOf(entry, found.list.name, found.list.version);
  const seen = await forecast(runner, cluster ?? { definitions: [], pods: [] }, capabilitiesOf(entry));
  const { attachments } = listAttachments(String(entry.cniDir));
  const standing = new Set(attachments.map(({ containerId }) => containerId)).size;
  const confName = `${basename(found.file, extname(found.file))}-catena.conflist`;
  const facts: Facts = { found, theirs, entry, dropped, cluster, seen, standing, confName, binDir, confDir };
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
  return `${comment.map(line => `# ${line}`.trimEnd()).join('\n')}\n${manifest}`;
}

interface Facts {
  readonly found: MultusList;
  /** What multus has read, and what catena will. */
  readonly theirs: JsonObject;
  readonly entry: JsonObject;
  readonly dropped: readonly string[];
  readonly cluster: MultusCluster | undefined;
  readonly seen: Forecast;
  /** Containers of this node that multus attached. */
  readonly standing: number;
  readonly confName: string;
  readonly binDir: string;
  readonly confDir: string;
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
  return [
    `${count(definitions.length, 'NetworkAttachmentDefinition')}, ${count(pods.length, 'pod')} that name networks`,
    ...(pools.length
      ? [
          `pools of whereabouts: ${some(
            pools.map(({ name, inUse }) => `${name} (${inUse} in use)`),
            NAMED,
          )}; they stay as they are`,
        ]
      : []),
    ...daemonSets.map(({ namespace, name }) => `DaemonSet ${namespace}/${name}`),
    ...unread.map(what => `not read: ${what}`),
  ];
}

function differences({ entry, theirs, dropped, cluster, seen }: Facts): string[] {
  const { defaultNetwork, refused, broken, naming, offered } = seen;
  const withResource = (cluster?.definitions ?? []).filter(({ resource }) => resource !== undefined);
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
      `devices go to networks in the order of the containers; a pod with too few is refused: ${some(
        withResource.map(one => `${one.namespace}/${one.name}`),
        NAMED,
      )}`,
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

function setsOf(
  cluster: MultusCluster | undefined,
): readonly { readonly namespace: string; readonly name: string }[] {
  return cluster?.daemonSets.length
    ? cluster.daemonSets
    : [{ namespace: 'kube-system', name: 'kube-multus-ds' }];
}

/** Numbers the steps; a sentence is about the step before it. */
function numbered(lines: readonly string[]): string[] {
  let step = 0;
  return lines.map(line => (/^[A-Z]|^\//.test(line) ? `   ${line}` : `${++step}. ${line}`));
}
