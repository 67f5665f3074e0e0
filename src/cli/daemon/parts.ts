// What does the work of a daemon beside requests get, and tell?
import type { BetweenState } from '../../between/plan.ts';
import { describeError } from '../../cni/errors.ts';
import type { WatchedCall } from '../../daemon/backend.ts';
import type { WorkerPool } from '../../daemon/pool.ts';
import type { DaemonSettings } from '../../daemon/settings.ts';
import type { Cluster, ClusterAccess, KubernetesPod } from '../../delegate/cluster.ts';
import type { Observer } from '../../observe/observer.ts';
import type { CallsInProgress } from '../../observe/watcher.ts';
import type { WatchState } from '../../watch/settings.ts';
import type { CommandCall } from '../command.ts';

/** What the work beside requests needs of the daemon. */
export interface BackgroundParts {
  readonly call: CommandCall;
  readonly stateDir: string;
  /** The name of this node, if it was given one. */
  readonly node: string | undefined;
  readonly pool: WorkerPool;
  readonly observer: Observer;
  /** Those that the daemon serves. */
  readonly calls: CallsInProgress;
  /** Whether any is being served that goes before what is done here, apart from those that take long. */
  isBusy(): boolean;
  /** Serves a call as if a runtime had made it. */
  readonly callPlugin: WatchedCall;
}

/** Recovery, upkeep, watch, routes to other nodes, and pods that follow their annotations. */
export interface Background {
  readonly watch: WatchState;
  /** Undefined while there are no routes to keep. */
  readonly between: BetweenState | undefined;
  /** Attachments and nodes for which the daemon must go on. */
  kept(): number;
  /** A pod is new or changed, or may be. */
  podChanged(namespace: string, name: string, pod: KubernetesPod): void;
  change(settings: Pick<DaemonSettings, 'watch' | 'between'>): void;
  stop(): Promise<void>;
}

/**
 * Opens clusters for the calls of a daemon. A cluster and its packages are loaded only if a configuration names one.
 * @param nodeName node whose pods are watched as well
 * @param onPod called with each of these pods that is new or changed
 */
export function shareClusters(
  nodeName: string | undefined,
  observer: Pick<Observer, 'log'>,
  onPod: Background['podChanged'],
) {
  const load = async () => {
    const { watchClusters } = await import('../../delegate/watched-clusters.ts');
    const warn = (what: string) => (problem: unknown) =>
      observer.log('warn', what, { error: describeError(problem) });
    const onUntold = warn('cannot report an event to the cluster');
    return watchClusters({ nodeName, onProblem: warn('cannot watch a cluster'), onUntold, onPod });
  };
  let shared: ReturnType<typeof load> | undefined;
  return {
    async open(access: ClusterAccess): Promise<Cluster> {
      shared ??= load();
      return (await shared).open(access);
    },
    close: () => void shared?.then(clusters => clusters.close()),
  };
}
