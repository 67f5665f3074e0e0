// What does every verb of the delegate runner work with?
import { existsSync } from 'node:fs';
import type { GcScope } from '../chain/garbage.ts';
import type { Runtime } from '../chain/runtime.ts';
import { CniError } from '../cni/errors.ts';
import type { LogFields } from '../log.ts';
import type { ContainerRoutes } from './default-route.ts';
import type { ClaimStore } from './kubernetes.ts';
import type { NetworkStatus } from './network-status.ts';
import type { Pod, RunnerOptions } from './options.ts';

/** A delegate runner: its configuration, and its hands. */
export interface Runner {
  readonly options: RunnerOptions;
  /**
   * How delegates are run. Result cache and journal are not those of whoever calls us: his record of us may have the
   * name of a delegate's.
   */
  readonly runtime: Runtime & { readonly cacheDir: string; readonly stateDir: string };
  /** Directory of the journal of pods. */
  readonly podsDir: string;
  /** Result cache of the runtime that calls us, which may run the same networks itself. */
  readonly callerCacheDir: string;
  /** Only asked for when more than one network may want the default route. */
  routes(): Promise<ContainerRoutes>;
  /** The first of these names that an interface of the container has. */
  findTaken(ifnames: readonly string[]): string | undefined;
  /** What the node holds of attachments that are on no record here; only GC asks. */
  readonly look?: () => Promise<GcScope['look']>;
  /** Tells what did not keep a verb from going on. */
  warn(message: string, fields?: LogFields): void;
  /** Annotations of a pod, where the runtime does not pass them. */
  readonly fetchAnnotations?: (pod: Pod) => Promise<Readonly<Record<string, string>> | undefined>;
  /** Claims of addresses, where there is a cluster that has them. */
  readonly claims?: () => Promise<ClaimStore>;
  /** Tells the world which networks a pod got, or that it has none; a failure makes ADD fail. */
  readonly publish?: (pod: Pod, status: readonly NetworkStatus[] | undefined) => Promise<void>;
}

/**
 * Refuses to go on while the default network is not ready.
 * @throws CniError with the code
 */
export function refuseUnready({ readinessFile }: RunnerOptions, code: number): void {
  if (readinessFile === undefined || existsSync(readinessFile)) return;
  throw new CniError(
    code,
    `Cannot attach to the default network: it is not ready, "${readinessFile}" is not there`,
  );
}
