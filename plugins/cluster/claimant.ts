// How does this node reach the store of its pool?
import { join } from 'node:path';
import { nodeName } from '../../src/cni/node-name.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { DEFAULT_DATA_DIR } from '../../src/ipam/lease-store.ts';
import { bootClock } from '../../src/node/upkeep/boot-clock.ts';
import type { Call } from '../../src/plugin/define.ts';
import { thisMachine } from '../../src/pools/held.ts';
import type { Claimant, Place } from '../../src/pools/place.ts';
import type { ClusterConf, LeaseConf } from './config.ts';

/** Seconds that one request to the cluster may take. */
const REQUEST_S = 5;
export const DEFAULT_TIMEOUT_S = 10;

/** A network, as a call has it. */
type Network = Pick<Call<LeaseConf>, 'conf' | 'network' | 'environment'>;

/** Where the network of a call keeps leases and blocks. */
export function placeOf({ conf, network, environment }: Network): Place {
  const dataDir = conf.ipam.dataDir || DEFAULT_DATA_DIR;
  const { node, kubeconfig } = conf.ipam;
  return {
    network,
    dir: join(dataDir, network),
    // Both seldom asked for: what this boot began with stays.
    get node() {
      return typeof node === 'string' && node
        ? node
        : nodeName(environment, typeof kubeconfig === 'string' ? kubeconfig : undefined);
    },
    get machine() {
      return thisMachine() || undefined;
    },
    boot: bootId(environment),
    reclaim: conf.ipam.reclaimAfterReboot ?? true,
    clock: bootClock,
  };
}

/**
 * The place with the store that the configuration names.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export async function claimantOf(call: Network, conf: ClusterConf): Promise<Claimant> {
  const { kubeconfig, dataDir, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const timeoutMs = Math.min(timeout, REQUEST_S) * 1000;
  return {
    ...placeOf(call),
    store: await openStore(kubeconfig, timeoutMs, dataDir),
    random: Math.random,
  };
}

/** Opens the store that a kubeconfig names. Only who needs a block loads the client of a cluster. */
export async function openStore(
  kubeconfig: string | undefined,
  timeoutMs: number,
  dataDir: string | undefined,
): Promise<Claimant['store']> {
  if (!kubeconfig) {
    const { directoryStore } = await import('../../src/pools/directory-store.ts');
    return directoryStore(join(dataDir || DEFAULT_DATA_DIR, '.catena-pools'));
  }
  const { clusterStore } = await import('../../src/pools/cluster-store.ts');
  const { openApiServer } = await import('../../src/delegate/api-server.ts');
  return clusterStore(openApiServer({ kubeconfig, timeoutMs }));
}
