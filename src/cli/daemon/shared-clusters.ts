// How do a daemon's calls share what it knows of a cluster?
import type { ClusterAccess } from '../../delegate/api-server.ts';
import type { Cluster } from '../../delegate/kubernetes.ts';
import type { WatchedClusters, WatchOptions } from '../../delegate/watched-clusters.ts';
import type { Observer } from '../../observe/observer.ts';

/**
 * Opens clusters for the calls of a daemon. A cluster and its packages are loaded only if a configuration names one.
 * @param nodeName node whose pods are watched as well
 * @param onPod called with each of these pods that is new or changed
 */
export function shareClusters(
  nodeName: string | undefined,
  observer: Pick<Observer, 'log'>,
  onPod: WatchOptions['onPod'],
) {
  let shared: Promise<WatchedClusters> | undefined;
  const load = async (): Promise<WatchedClusters> => {
    const { watchClusters } = await import('../../delegate/watched-clusters.ts');
    const onProblem = ({ message }: Error) =>
      observer.log('warn', 'cannot watch a cluster', { error: message });
    return watchClusters({ nodeName, onProblem, ...(onPod && { onPod }) });
  };
  return {
    async open(access: ClusterAccess): Promise<Cluster> {
      shared ??= load();
      return (await shared).open(access);
    },
    close: () => void shared?.then(clusters => clusters.close()),
  };
}
