// Which options does the delegate runner take, and how are they evaluated?

import * as z from 'zod/mini';
import { DEVICE_INFO_DIR } from '../../src/cni/device-info.ts';
import { cniCacheDir, runDir, runnerJournals, stateDir } from '../../src/cni/directories.ts';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { foldKeys, type JsonObject, memberOf } from '../../src/cni/json.ts';
import type { SpecVersion } from '../../src/cni/result.ts';
import {
  optionalFlag,
  optionalObject,
  optionalText,
  optionalTexts,
  PluginConfig,
} from '../../src/cni/schemas.ts';
import type { RunnerOptions, Selection } from '../../src/delegate/runner.ts';
import {
  findNameProblem,
  NetworkSelection,
  parseSelection,
  parseSelections,
  selectByConfig,
} from '../../src/delegate/selection.ts';
import { isDirectory } from '../../src/files/read-file.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';

/** Keys of multus that have nothing to say here. */
const withoutEffect = z.optional(z.unknown());

const optionalCount = z.optional(z.int().check(z.minimum(0)));

/**
 * Options of a `"type": "catena"` entry. The README's table repeats these descriptions. Those that say "Multus:" are interpreted
 * as multus does, so that its configuration works unchanged.
 */
export const CatenaConf = z.extend(PluginConfig, {
  /** Networks of every container: configurations of plugins or lists, or objects that name a network and what is requested of it. The first is the default network, unless `network` names one. */
  delegates: z.optional(z.array(z.looseObject({}))),
  /** The default network: a name to look up in `definitionsDir` and `confDir`, or the path of a file or directory. */
  network: optionalText,
  /** Names of further networks of every pod outside `systemNamespaces`. */
  defaultNetworks: optionalTexts,
  /** Further networks of every container, as in the pod annotation: `name@interface,…`, or an array of objects. */
  networks: z.optional(z.union([z.string(), z.array(NetworkSelection)], 'must be a string or an array')),
  /** Networks that a pod may ask for, by its annotation and CNI_ARGS together. */
  maxNetworks: z._default(z.int().check(z.minimum(0)), 64),
  /** Directory of network configurations; default `/etc/cni/catena/net.d`, for the type `multus` `/etc/cni/multus/net.d`. */
  confDir: optionalText,
  /** Directory of NetworkAttachmentDefinitions, as JSON or YAML files. */
  definitionsDir: optionalText,
  /** Directories of plugins that are searched before those of CNI_PATH. */
  binDir: z.optional(z.union([z.string(), z.array(z.string())], 'must be a string or an array')),
  /** Prefix of interface names that are not given; the network's place in the order follows. Two lists for one container need different ones. */
  interfacePrefix: z._default(z.string(), 'net'),
  /** Interface or network that has the default route, for both families or one: `{"ipv4": "net1"}`. Default: the first network that sets one. */
  defaultRoute: z.optional(
    z.union(
      [z.string(), z.object({ ipv4: optionalText, ipv6: optionalText })],
      'must be a name, or an object with a name for "ipv4", "ipv6" or both',
    ),
  ),
  /** Networks that get what the runtime offers: `default` for the default network, `all`, or names of networks in addition to it. */
  runtimeConfigFor: z._default(
    z.union(
      [z.literal('default'), z.literal('all'), z.array(z.string())],
      'must be "default", "all" or an array',
    ),
    'default',
  ),
  /** The default network is ready if this file exists; until then ADD fails with code 11 and STATUS with 50. */
  readinessFile: optionalText,
  /** Pods may only name definitions of their own namespace and of `globalNamespaces`, and no networks without a definition. */
  namespaceIsolation: z._default(z.boolean(), false),
  /** Namespaces whose definitions every pod may name, separated by commas or as an array. */
  globalNamespaces: z._default(
    z.union([z.string(), z.array(z.string())], 'must be a string or an array'),
    'default',
  ),
  /** Namespaces whose pods do not get `defaultNetworks`. */
  systemNamespaces: z._default(z.array(z.string()), ['kube-system']),
  /** Namespace of definitions that the configuration names. */
  definitionNamespace: optionalText,
  /** Directory for state that survives a reboot: the journals in `pods` and `delegates`; default CATENA_STATE_DIR, else `/var/lib/catena`. */
  stateDir: optionalText,
  /** Directory for state that does not; default CATENA_RUN_DIR, else `/run/catena`. Delegates get both directories in their environment. */
  runDir: optionalText,
  /** Directory of the delegates' result cache; default `catena` in CATENA_CNI_CACHE_DIR, else `/var/lib/cni/catena`; for the type `multus` its `multus`. */
  cniCacheDir: optionalText,
  /** Minimum severity of log lines: `error`, `warn`, `info` (a line for each plugin call), `debug`; multus's `panic` and `verbose` are read as `error` and `info`. */
  logLevel: optionalText,
  /** File to which log lines are appended. */
  logFile: optionalText,
  /** Rotation of the log file: `maxSize` (100 MiB), `maxBackups` (5 files, 0 for all), `maxAge` (5 days, 0 for ever), and `compress` (true), which only a daemon does. */
  logOptions: z.optional(
    z.looseObject({
      /** MiB after which the log file is rotated. */
      maxSize: optionalCount,
      /** Number of rotated files to keep; 0 for all. */
      maxBackups: optionalCount,
      /** Days to keep rotated files; 0 for ever. */
      maxAge: optionalCount,
      /** Compress rotated files with gzip. */
      compress: optionalFlag,
    }),
  ),
  /** With a log file: log to standard error as well. */
  logToStderr: z._default(z.boolean(), true),
  /** File to which a line of JSON is appended for each plugin call: times, exit code, and its place in the trace. */
  traceFile: optionalText,
  /** Directory for a trace of each call, for `catena log <id>`, which looks in `/run/catena/traces`; default CATENA_TRACE_DIR. A daemon that makes the call keeps the trace among its own instead. */
  traceDir: optionalText,
  /** Kubeconfig of a cluster whose API provides annotations and definitions, and gets the network status. Not needed in a pod with an account of its cluster. */
  kubeconfig: optionalText,
  /** Pods get and lose networks while they run, when their annotation changes. Needs a daemon and a cluster. */
  followAnnotations: z._default(z.boolean(), false),
  /** Directory of the kubelet, which is asked for a pod's devices if a definition names a resource; default `/var/lib/kubelet`. */
  kubeletDir: optionalText,
  /** Directory of files with device information, of device plugins in `dp` and of networks in `cni`; default `/var/run/k8s.cni.cncf.io/devinfo`. */
  deviceInfoDir: optionalText,
  /** Seconds that a request to the cluster may take. */
  kubernetesTimeout: z._default(z.number().check(z.positive(), z.maximum(3_600)), 10),
  /** Multus: `network`; `delegates` is then ignored. */
  clusterNetwork: optionalText,
  /** Multus: `cniCacheDir`, where its DEL finds each pod, too: pods of either are deleted by both. */
  cniDir: optionalText,
  /** Multus: `readinessFile`. */
  readinessindicatorfile: optionalText,
  /** Multus: `definitionNamespace`. */
  multusNamespace: optionalText,
  /** Multus: a further chain, whose plugins are the `.conf` files in the directory of that name next to the file that `clusterNetwork` names; it comes last. */
  auxiliaryCNIChainName: optionalText,
  /** Multus: where its daemon sees the node. Paths of its other keys that begin with it or with `/host` are read as the node's, as they are for the type `multus-shim`. */
  chrootDir: optionalText,
  /** Multus: no effect; a failed DEL always stays on record. */
  retryDeleteOnError: withoutEffect,
  /** Multus: no effect; once for "the default network always comes first". */
  always_use_default: withoutEffect,
  /** Multus: no effect; the socket of its daemon, as the daemon sees it. */
  socketDir: withoutEffect,
  /** Multus: no effect; the socket of its daemon. */
  daemonSocketDir: withoutEffect,
  /** Multus: no effect; where its daemon writes its list, or that it does. */
  multusConfigFile: withoutEffect,
  /** Multus: no effect; where its daemon looks for the default network. Name that as `clusterNetwork`. */
  multusAutoconfigDir: withoutEffect,
  /** Multus: no effect; the file of the default network for its daemon. Name that as `clusterNetwork`. */
  multusMasterCNI: withoutEffect,
  /** Multus: no effect; where its daemon writes its list. */
  cniConfigDir: withoutEffect,
  /** Multus: no effect; the version that its daemon writes into lists. */
  forceCNIVersion: withoutEffect,
  /** Multus: no effect; the name that its daemon gives its list. */
  overrideNetworkName: withoutEffect,
  /** Multus: no effect; `catena daemon` limits calls itself. */
  connectionLimit: withoutEffect,
  /** Multus: no effect; `catena daemon --metrics` has an address. */
  metricsPort: withoutEffect,
  /** Multus: no effect. */
  enablePprof: withoutEffect,
  /** Multus: no effect; the kubeconfig says how the node identifies itself. */
  perNodeCertificate: withoutEffect,
  runtimeConfig: optionalObject,
});
export type CatenaConf = z.output<typeof CatenaConf>;

/** The name under which the runner is called, and its type in a list. */
export const RUNNER = 'catena';

/** Under these types the runner replaces multus, without and with its daemon. */
const MULTUS = 'multus';
const MULTUS_SHIM = 'multus-shim';

/**
 * Evaluates the options.
 * @throws CniError 7 for invalid values
 */
export function optionsOf(conf: CatenaConf, network: string, version: SpecVersion): RunnerOptions {
  const { defaultRoute } = conf;
  const onNode = nodePaths(conf);
  const clusterNetwork = onNode(conf.clusterNetwork);
  const owners = typeof defaultRoute === 'string' ? { ipv4: defaultRoute, ipv6: defaultRoute } : defaultRoute;
  const delegates = clusterNetwork ? [] : (conf.delegates ?? []);
  if (findIfnameProblem(`${conf.interfacePrefix}1`)) {
    throw invalid(
      `"interfacePrefix" is ${JSON.stringify(conf.interfacePrefix)}, which no valid interface name begins with`,
    );
  }
  return {
    network,
    version,
    ownTypes: [RUNNER, ...(conf.type ? [conf.type] : [])],
    defaultNetwork: conf.network || clusterNetwork || undefined,
    delegates: delegates.map((one, i) => delegateOf(one, i === 0 ? network : `${network}-${i}`)),
    defaultNetworks: (conf.defaultNetworks ?? []).flatMap(name => onNode(name) ?? []),
    networks: networksOf(conf.networks ?? [], network),
    places: {
      confDir: onNode(conf.confDir) || `/etc/cni/${isMultus(conf) ? MULTUS : RUNNER}/net.d`,
      definitionsDir: conf.definitionsDir || undefined,
      cniVersion: version,
    },
    auxiliary: auxiliaryOf(conf, clusterNetwork),
    maxNetworks: conf.maxNetworks,
    interfacePrefix: conf.interfacePrefix,
    runtimeConfigFor: conf.runtimeConfigFor,
    defaultRoute: { 4: owners?.ipv4 || undefined, 6: owners?.ipv6 || undefined },
    policy: {
      isolated: conf.namespaceIsolation,
      global: listOf(conf.globalNamespaces),
      system: conf.systemNamespaces,
      definitions: conf.definitionNamespace || conf.multusNamespace || 'kube-system',
    },
    kubeletDir: conf.kubeletDir || '/var/lib/kubelet',
    deviceInfoDir: conf.deviceInfoDir || DEVICE_INFO_DIR,
    readinessFile: conf.readinessFile || onNode(conf.readinessindicatorfile) || undefined,
  };
}

/** Whether a key is one of multus's that have nothing to say here. */
function isWithoutEffect(key: string): boolean {
  return (CatenaConf.shape as Readonly<Record<string, unknown>>)[key] === withoutEffect;
}

function isMultus({ type }: CatenaConf): boolean {
  return type === MULTUS || type === MULTUS_SHIM;
}

/**
 * Translates paths of multus's daemon, which runs in a pod: that sees the node's directories below `/host`, and the whole node below
 * `chrootDir`.
 */
function nodePaths({
  type,
  chrootDir,
}: Pick<CatenaConf, 'type' | 'chrootDir'>): (path: string | undefined) => string | undefined {
  const isSeenByDaemon = type === MULTUS_SHIM || chrootDir;
  const roots = isSeenByDaemon ? ['/host', chrootDir?.replace(/\/+$/, '') || '/host'] : [];
  return path => path?.slice(roots.find(root => path.startsWith(`${root}/`))?.length ?? 0);
}

/** Directories of plugins that are searched before those of CNI_PATH. */
export function binDirsOf({ binDir }: CatenaConf): readonly string[] {
  return typeof binDir === 'string' ? [binDir].filter(Boolean) : (binDir ?? []);
}

/** Where the runner keeps its state, and the environment through which delegates learn of it. */
export interface RunnerPlaces {
  /** Directory of the journal of pods. The next one is that of the delegates. */
  readonly podsDir: string;
  readonly stateDir: string;
  readonly cacheDir: string;
  readonly callerCacheDir: string;
  /** Whether the result cache is multus's, in which it has to find its own note of each pod, too. */
  readonly isSharedWithMultus: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** All directories of a call. */
export function placesOf(conf: CatenaConf, env: RunnerPlaces['env']): RunnerPlaces {
  const directories = {
    CATENA_RUN_DIR: conf.runDir || runDir(env),
    CATENA_STATE_DIR: conf.stateDir || stateDir(env),
  };
  const journals = runnerJournals(directories.CATENA_STATE_DIR);
  return {
    podsDir: journals.pods,
    stateDir: journals.delegates,
    cacheDir:
      conf.cniCacheDir ||
      nodePaths(conf)(conf.cniDir) ||
      `${cniCacheDir(env)}/${isMultus(conf) ? MULTUS : RUNNER}`,
    callerCacheDir: cniCacheDir(env),
    isSharedWithMultus: !conf.cniCacheDir && (isMultus(conf) || Boolean(conf.cniDir)),
    env: { ...env, ...directories },
  };
}

/**
 * An entry with a type or plugins is a configuration; any other one selects a network.
 * @param name for a configuration without a name
 */
function delegateOf(entry: JsonObject, name: string): Selection {
  const isConfig = memberOf(entry, 'type') !== undefined || memberOf(entry, 'plugins') !== undefined;
  if (isConfig) return selectByConfig(entry, name);
  return withName(parseSelection(entry, 'an element of "delegates"', 'configuration'), name);
}

/** @throws CniError 7 in cases that multus silently ignores */
function auxiliaryOf(
  { auxiliaryCNIChainName: name, network }: CatenaConf,
  clusterNetwork: string | undefined,
): RunnerOptions['auxiliary'] {
  if (!name) return undefined;
  const path = network || clusterNetwork;
  const what = `"auxiliaryCNIChainName" is ${JSON.stringify(name)}`;
  const problem = findNameProblem(undefined, name);
  if (problem !== undefined) throw invalid(`${what}: ${problem}`);
  if (!path?.includes('/'))
    throw invalid(`${what}, and "clusterNetwork" is not a path, next to which its directory would be`);
  return { file: isDirectory(path) ? `${path}/.conflist` : path, name };
}

function networksOf(networks: NonNullable<CatenaConf['networks']>, network: string): Selection[] {
  if (typeof networks === 'string') return parseSelections(networks, '"networks"');
  return networks.map((one, i) =>
    withName(parseSelection(one, `element ${i} of "networks"`, 'configuration'), `${network}-further-${i}`),
  );
}

function withName(selection: Selection, name: string): Selection {
  return { ...selection, name: selection.name || name };
}

function listOf(names: string | readonly string[]): string[] {
  const list = typeof names === 'string' ? names.split(',') : names;
  return list.map(name => name.trim()).filter(Boolean);
}

function invalid(what: string): CniError {
  return invalidConfig(`Cannot use catena configuration: ${what}`);
}

/** Keys with a path that multus's daemon may see elsewhere than the node. */
const PATHS = ['clusterNetwork', 'readinessindicatorfile', 'binDir', 'logFile'];

/**
 * Translates an entry: paths are the node's, and what follows from the name `multus` is said.
 * @param kubeconfig of the account that the runner is to have
 * @throws CniError 7 for an entry that the runner would refuse
 */
export function fromMultus(entry: JsonObject, kubeconfig: string) {
  const folded = foldKeys(CatenaConf, entry) as JsonObject;
  const dropped = Object.keys(folded).filter(isWithoutEffect);
  const onNode = nodePaths(folded as CatenaConf);
  const translated = (value: unknown): unknown => (typeof value === 'string' ? onNode(value) : value);
  const {
    type: _,
    name: _name,
    cniVersion: _version,
    chrootDir: _root,
    cniConf: _unread,
    ...others
  } = folded;
  const said = Object.entries(others).filter(([key]) => !dropped.includes(key));
  return {
    dropped,
    entry: {
      type: RUNNER,
      ...Object.fromEntries(
        said.map(([key, value]) => [key, PATHS.includes(key) ? translated(value) : value]),
      ),
      ...(Array.isArray(folded.defaultNetworks)
        ? { defaultNetworks: folded.defaultNetworks.map(translated) }
        : {}),
      kubeconfig,
      confDir: translated(folded.confDir) || '/etc/cni/multus/net.d',
      cniDir: placesOf(folded as CatenaConf, {}).cacheDir,
    },
  };
}
