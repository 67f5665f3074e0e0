// What does every verb of the delegate runner work with?

import { existsSync } from 'node:fs';
import type { Conflist } from '../chain/config/conflist.ts';
import type { ChainRuntime, FindHeld } from '../chain/run/runtime.ts';
import { CniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import type { Family, Ip } from '../net/ip.ts';
import type { ClaimStore, Cluster, NetworkStatus } from './cluster.ts';
import type { Pod, RunnerOptions } from './options.ts';

/** A delegate runner: its configuration, and its access to the node and the cluster. */
export interface Runner {
  readonly options: RunnerOptions;
  /**
   * How delegates are run. Result cache and journal are not those of the runtime that calls us: its record of our attachment may
   * have the same name as a delegate's.
   */
  readonly runtime: ChainRuntime & { readonly cacheDir: string; readonly stateDir: string };
  /** Directory of the journal of pods. */
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
  /** The cluster, if one is configured. */
  readonly cluster?: () => Promise<Cluster>;
  /** How a daemon calls the runner again when the annotation of a pod has changed; absent if networks do not follow it. */
  readonly follow?: FollowCall;
  /** How a daemon calls the runner again for this pod, whatever its annotation; absent without a daemon. */
  readonly again?: FollowCall;
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

/** The default routes of a container. */
export interface ContainerRoutes {
  /** Families with a default route through one of the interfaces. */
  familiesWithDefault(ifnames: readonly string[]): readonly Family[];
  /** Removes the default routes of the families through one of the interfaces. */
  removeDefaults(ifnames: readonly string[], families: readonly Family[]): void;
  /** Adds a default route for each gateway. */
  addDefaults(ifname: string, gateways: readonly Ip[]): void;
}

/** What an ADD has attached, or why it has attached nothing. */
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
