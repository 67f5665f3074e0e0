// What are the inputs of a delegate runner, its configuration in one form and the pod it is called for?
import { argOf, type CniArgs } from '../cni/env.ts';
import type { JsonObject } from '../cni/json.ts';
import type { SpecVersion } from '../cni/result.ts';
import type { Device, KubeletPod, NetworkDefinition } from './cluster.ts';

/** Which namespaces may use which definitions. */
interface NamespacePolicy {
  /** A pod may only name definitions of its own namespace, and of those in `global`. */
  readonly isolated: boolean;
  readonly global: readonly string[];
  /** Namespaces whose pods do not get the networks of {@link RunnerOptions.defaultNetworks}. */
  readonly system: readonly string[];
  /** Namespace of definitions that the configuration names. */
  readonly definitions: string;
}

/** Where to look for networks. */
export interface NetworkPlaces {
  /** Directory of configurations. */
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
  /** Requests to the plugins, by capability. */
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
  /** Directory of files with device information. */
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
