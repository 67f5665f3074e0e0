// How do the calls that a daemon makes share what it knows of a cluster?
import type { ClusterAccess } from '../../delegate/api-server.ts';
import type { Cluster } from '../../delegate/kubernetes.ts';
import type { WatchedClusters } from '../../delegate/watched-clusters.ts';
import type { Observer } from '../../observe/observer.ts';

/**
 * Opens clusters for the calls of a daemon: only whose configuration names one has it in memory, and its packages.
 * @param nodeName whose pods are watched, too
 */
export function shareClusters(nodeName: string | undefined, observer: Pick<Observer, 'log'>) {
  let shared: Promise<WatchedClusters> | undefined;
  const load = async (): Promise<WatchedClusters> => {
    const { watchClusters } = await import('../../delegate/watched-clusters.ts');
    const onProblem = ({ message }: Error) =>
      observer.log('warn', 'a cluster is not watched', { error: message });
    return watchClusters({ nodeName, onProblem });
  };
  return {
    async open(access: ClusterAccess): Promise<Cluster> {
      shared ??= load();
      return (await shared).open(access);
    },
    close: () => void shared?.then(clusters => clusters.close()),
  };
}
