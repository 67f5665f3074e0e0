// How does this node reach the store of its pool?
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bootId } from '../../src/files/boot-id.ts';
import { DEFAULT_DATA_DIR } from '../../src/ipam/lease-store.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { Claimant, Place } from '../../src/pools/place.ts';
import { bootClock } from '../../src/upkeep/boot-clock.ts';
import type { ClusterConf, LeaseConf } from './config.ts';

/** Seconds that one request to the cluster may take. */
const REQUEST_S = 5;
export const DEFAULT_TIMEOUT_S = 10;

/** Where the network of a call keeps leases and blocks. */
export function placeOf({ conf, network, environment }: Call<LeaseConf>): Place {
  const dataDir = conf.ipam.dataDir || DEFAULT_DATA_DIR;
  const { node } = conf.ipam;
  return {
    network,
    dir: join(dataDir, network),
    // Seldom asked for: the name that was used first stays. And node:os takes as long to load as a lease to write.
    get node() {
      return (
        (typeof node === 'string' && node) ||
        environment.CATENA_NODE_NAME ||
        readFileSync('/proc/sys/kernel/hostname', 'utf8').trim()
      );
    },
    boot: bootId(environment),
    reclaim: conf.ipam.reclaimAfterReboot ?? true,
  };
}

/**
 * The place with the store that the configuration names.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export async function claimantOf(call: Call<LeaseConf>, conf: ClusterConf): Promise<Claimant> {
  const { kubeconfig, dataDir, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const place = placeOf(call);
  const timeoutMs = Math.min(timeout, REQUEST_S) * 1000;
  return {
    ...place,
    store: await openStore(kubeconfig, timeoutMs, dataDir),
    clock: bootClock,
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
