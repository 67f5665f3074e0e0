// What does a delegate runner work with: its configuration in one form, and the pod it is called for?
import type { CniArgs } from '../cni/cni-args.ts';
import type { JsonObject } from '../cni/json.ts';
import type { SpecVersion } from '../cni/version.ts';
import type { NetworkPlaces } from './find-network.ts';
import type { Selection } from './selection.ts';

/** Which namespaces may name which definitions. */
export interface NamespacePolicy {
  /** A pod may only name definitions of its own namespace, and of those in `global`. */
  readonly isolated: boolean;
  readonly global: readonly string[];
  /** Namespaces whose pods do not get the networks of {@link RunnerOptions.defaultNetworks}. */
  readonly system: readonly string[];
  /** Namespace of definitions that the configuration names. */
  readonly definitions: string;
}

/** The configuration of the runner, whichever of the keys said it. */
export interface RunnerOptions {
  /** Name of the network whose link the runner is. */
  readonly network: string;
  readonly version: SpecVersion;
  /** Types under which this very plugin is called. */
  readonly ownTypes: readonly string[];
  /** The default network by name or path; the first of `delegates` when undefined. */
  readonly defaultNetwork: string | undefined;
  readonly delegates: readonly Selection[];
  /** Further networks of every pod, but for those of system namespaces. */
  readonly defaultNetworks: readonly string[];
  /** Further networks of every pod. */
  readonly networks: readonly Selection[];
  readonly places: NetworkPlaces;
  /** A chain beside the default network: links in files of their own, in the directory of that name beside `file`. */
  readonly auxiliary: { readonly file: string; readonly name: string } | undefined;
  readonly interfacePrefix: string;
  /** Who gets what the runtime offers besides the default network: everybody, or networks of these names. */
  readonly runtimeConfigFor: 'default' | 'all' | readonly string[];
  /** Interface or network that has the default route of a family. */
  readonly defaultRoute: { readonly 4: string | undefined; readonly 6: string | undefined };
  readonly policy: NamespacePolicy;
  /** The default network is ready when this file is there. */
  readonly readinessFile: string | undefined;
}

/** What the runtime asks for: one interface of one container, and all that comes with it. */
export interface Pod {
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: CniArgs;
  /** `runtimeConfig` of the request. */
  readonly capabilityArgs: JsonObject;
}

/** The last value of an argument. */
export function argOf({ args }: Pick<Pod, 'args'>, key: string): string | undefined {
  return args.findLast(([name]) => name === key)?.[1];
}

/** The pod's namespace in Kubernetes; undefined outside of it. */
export function namespaceOf(pod: Pick<Pod, 'args'>): string | undefined {
  return argOf(pod, 'K8S_POD_NAMESPACE') || undefined;
}
