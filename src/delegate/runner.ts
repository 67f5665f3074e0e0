// What does every verb of the delegate runner work with: its configuration in one form, the pod that it is called for, the node and the cluster?

import { existsSync } from 'node:fs';
import type { Conflist } from '../chain/config/conflist.ts';
import type { ChainRuntime, FindHeld } from '../chain/run/runtime.ts';
import { argOf, type CniArgs } from '../cni/env.ts';
import { CniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import type { SpecVersion } from '../cni/result.ts';
import type { Family, Ip } from '../net/ip.ts';
import type { ClaimStore, Cluster, Device, KubeletPod, NetworkDefinition, NetworkStatus } from './cluster.ts';

interface NamespacePolicy {
  /** A pod may only name definitions of its own namespace, and of those in `global`. */
  readonly isolated: boolean;
  readonly global: readonly string[];
  /** Namespaces whose pods do not get the networks of {@link RunnerOptions.defaultNetworks}. */
  readonly system: readonly string[];
  /** Namespace of definitions that the configuration names. */
  readonly definitions: string;
}

export interface NetworkPlaces {
  readonly confDir: string;
  /** Directory of NetworkAttachmentDefinitions; not searched when undefined. */
  readonly definitionsDir: string | undefined;
  /**
   * Reads a definition from the cluster: first for a network that a pod names, last for one that the configuration names. A
   * node must be able to start without the cluster.
   */
  readonly fetchDefinition?: (namespace: string, name: string) => Promise<NetworkDefinition | undefined>;
  /** Version for a definition whose configuration names none. */
  readonly cniVersion: string;
}

/** A network that a container is to have, with the requests for it. */
export interface Selection {
  /** With `config`: the name for a configuration that has none. */
  readonly name: string;
  readonly namespace?: string | undefined;
  readonly config?: JsonObject | undefined;
  readonly ifname?: string | undefined;
  readonly capabilityArgs: JsonObject;
  /** Gateways of the default route; empty for those that the network sets itself. */
  readonly defaultRoute?: readonly string[] | undefined;
  readonly cniArgs?: JsonObject | undefined;
  readonly deviceId?: string | undefined;
  readonly getsRuntimeConfig?: boolean | undefined;
  /** Name of the IPAMClaim whose addresses the network is to use. */
  readonly claim?: string | undefined;
}

/** The runner's configuration, independent of the keys that it came from. */
export interface RunnerOptions {
  /** Name of the network in which the runner is the plugin. */
  readonly network: string;
  readonly version: SpecVersion;
  /** Types under which this plugin is called. */
  readonly ownTypes: readonly string[];
  /** The default network by name or path; the first of `delegates` when undefined. */
  readonly defaultNetwork: string | undefined;
  readonly delegates: readonly Selection[];
  /** Further networks of every pod, except those of system namespaces. */
  readonly defaultNetworks: readonly string[];
  /** Further networks of every pod. */
  readonly networks: readonly Selection[];
  readonly places: NetworkPlaces;
  /** A chain beside the default network: plugins in separate files, in the directory of that name beside `file`. */
  readonly auxiliary: { readonly file: string; readonly name: string } | undefined;
  /** Networks that a pod may ask for, in annotation and arguments together. */
  readonly maxNetworks: number;
  readonly interfacePrefix: string;
  /** Which networks besides the default one get the runtime's capabilities: none, all, or those of these names. */
  readonly runtimeConfigFor: 'default' | 'all' | readonly string[];
  /** Interface or network that has the default route of a family. */
  readonly defaultRoute: { readonly 4: string | undefined; readonly 6: string | undefined };
  readonly policy: NamespacePolicy;
  /** Directory of the kubelet, which tells which devices a pod has. */
  readonly kubeletDir: string;
  /** Devices that the pod has by claims, if a cluster is configured. */
  readonly listClaimedDevices?: (pod: KubeletPod) => Promise<readonly Device[]>;
  readonly deviceInfoDir: string;
  /** The default network is ready when this file exists. */
  readonly readinessFile: string | undefined;
}

/** The runtime's request: one interface of one container, with its arguments. */
export interface Pod {
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: CniArgs;
  /** `runtimeConfig` of the request. */
  readonly capabilityArgs: JsonObject;
}

/** Whether a network has what belongs to the machine, and not to its pod. */
export function isOfMachine({ claim, capabilityArgs: { ips, mac } }: Selection): boolean {
  return claim !== undefined || ips !== undefined || mac !== undefined;
}

/** The pod's namespace in Kubernetes; undefined outside Kubernetes. */
export function namespaceOf(pod: Pick<Pod, 'args'>): string | undefined {
  return argOf(pod, 'K8S_POD_NAMESPACE') || undefined;
}

/** A delegate runner: its configuration, and its access to the node and the cluster. */
export interface Runner {
  readonly options: RunnerOptions;
  /**
   * How delegates are run. Result cache and journal are not those of the runtime that calls us: its record of our attachment may
   * have the same name as a delegate's.
   */
  readonly runtime: ChainRuntime & { readonly cacheDir: string; readonly stateDir: string };
  readonly podsDir: string;
  /** Result cache of the runtime that calls us, which may run the same networks itself. */
  readonly callerCacheDir: string;
  /** The result cache is multus's as well, whose DEL then finds what was attached here. */
  readonly isSharedWithMultus?: boolean;
  /** Called only if more than one network may want the default route. */
  routes(): Promise<ContainerRoutes>;
  /** The first of these names that already exists as an interface of the container. */
  findTaken(ifnames: readonly string[]): string | undefined;
  /** What the node holds of attachments without a record here; only GC uses it. */
  readonly look?: (list: Conflist) => Promise<FindHeld | undefined>;
  /** Reports what did not stop a verb. */
  warn(message: string, fields?: JsonObject): void;
  /** Annotations of a pod, if the runtime does not pass them. */
  readonly fetchAnnotations?: (pod: Pod) => Promise<Readonly<Record<string, string>> | undefined>;
  /** IPAMClaims, if a cluster is configured. */
  readonly claims?: () => Promise<ClaimStore>;
  readonly cluster?: () => Promise<Cluster>;
  /** How a daemon calls the runner again when the annotation of a pod has changed; absent if networks do not follow it. */
  readonly follow?: FollowCall;
  /** How a daemon calls the runner again for this pod, whatever its annotation; absent without a cluster. */
  readonly again?: FollowCall;
  /** Whether a daemon makes this call. One made without it may be followed by one that runs later. */
  readonly isServed?: boolean;
  /** Does the work while no other process, such as `catena attach`, adds networks to the container. @throws CniError 11 */
  readonly whileAlone?: <T>(containerId: string, work: () => Promise<T>) => Promise<T>;
  /** Has nothing leave the container through interfaces of these names, which need not exist. @throws CniError 11 */
  readonly beginQuiet?: (ifnames: readonly string[]) => Promise<void>;
  /** Ends that, and announces what the interfaces have; does nothing in a namespace that is gone. */
  readonly endQuiet?: (ifnames: readonly string[]) => Promise<void>;
  /** Whether another host answers for an IPv4 address of these interfaces. */
  readonly isAnsweredElsewhere?: (ifnames: readonly string[]) => Promise<boolean>;
  /** Publishes which networks a pod has, or that it has none; a failure makes ADD fail. */
  readonly publish?: (pod: Pod, status: readonly NetworkStatus[] | undefined) => Promise<void>;
  /** Tells in events what became of an ADD; never fails. */
  readonly tell?: (pod: Pod, outcome: AddOutcome) => Promise<void>;
}

export interface ContainerRoutes {
  familiesWithDefault(ifnames: readonly string[]): readonly Family[];
  removeDefaults(ifnames: readonly string[], families: readonly Family[]): void;
  addDefaults(ifname: string, gateways: readonly Ip[]): void;
}

export type AddOutcome = { readonly attached: readonly NetworkStatus[] } | { readonly failure: unknown };

/** A call of the runner: environment and standard input. */
export interface FollowCall {
  readonly env: Record<string, string>;
  readonly stdin: string;
}

/**
 * Throws while the default network is not ready.
 * @throws CniError with the code
 */
export function refuseUnready({ readinessFile }: RunnerOptions, code: number): void {
  if (readinessFile === undefined || existsSync(readinessFile)) return;
  throw new CniError(
    code,
    `Cannot attach to the default network: it is not ready, "${readinessFile}" does not exist`,
  );
}
