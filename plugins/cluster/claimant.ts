// How does this node reach the store of its pool?

import { join } from 'node:path';
import { stateDir } from '../../src/cni/directories.ts';
import { describeError } from '../../src/cni/errors.ts';
import { nodeName } from '../../src/cni/node-name.ts';
import type { LeaseConf } from '../../src/cni/schemas.ts';
import { thisMachine } from '../../src/files/machine.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { DEFAULT_DATA_DIR, leaseDirOf } from '../../src/ipam/lease-files.ts';
import { renderRestored } from '../../src/ipam/lease-store.ts';
import {
  bootClock,
  findUpkeep,
  putUpkeep,
  type UpkeepNote,
  upkeepLockOf,
} from '../../src/node/upkeep/note.ts';
import type { Call } from '../../src/plugin/define.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { type Held, writeHeld } from '../../src/pools/held.ts';
import type { Claimant, Place } from '../../src/pools/place.ts';
import type { ClusterConf } from './config.ts';

/** Seconds that one request to the cluster may take. */
const REQUEST_S = 5;
export const DEFAULT_TIMEOUT_S = 10;

/** A host without a cluster has no other nodes, which would collect what it held under another name or as another machine. */
const LONE_NODE = 'localhost';

type Network = Pick<Call<LeaseConf>, 'conf' | 'network' | 'environment'> & Partial<Pick<Call, 'log'>>;

/** Where the network of a call keeps leases and blocks. */
export function placeOf({ conf, network, environment, log }: Network): Place {
  const dir = leaseDirOf(conf, network);
  const { node, kubeconfig } = conf.ipam;
  const access = typeof kubeconfig === 'string' && kubeconfig;
  return {
    network,
    dir,
    // Both seldom asked for: what this boot began with stays.
    get node() {
      if (typeof node === 'string' && node) return node;
      return access ? nodeName(environment, access) : LONE_NODE;
    },
    get machine() {
      return (access && thisMachine()) || undefined;
    },
    boot: bootId(environment),
    reclaim: conf.ipam.reclaimAfterReboot ?? true,
    clock: bootClock,
    onRestored: addresses => log?.warn(renderRestored(addresses, dir)),
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

// Its upkeep knows notes about attachments. This one is about all of them: it bears a name that no container has.

const PLUGIN = 'cluster';
const OWNER = { containerId: 'blocks-of-this-node', ifname: 'none' };
/** Seconds between two looks, give or take a quarter: nodes that started together must not ask together. */
const INTERVAL_S = 600;
/**
 * Leaves a note if there is none of this boot with this configuration.
 * @param again the note was acted on: the next time is due
 */
export function noteUpkeep(call: Call<LeaseConf>, again = false): void {
  const dir = stateDir(call.environment);
  const owner = { network: call.network, ...OWNER };
  const boot = bootId(call.environment);
  const known = findUpkeep(dir, PLUGIN, owner);
  if (!again && known?.boot === boot && known.call.stdin === requestOf(call)) return;
  put(call, { dueAt: bootClock() + INTERVAL_S * (0.75 + Math.random() / 2), id: known?.id });
}

/** Makes the note due now: addresses have become few. Nothing depends on it: the next ADD asks again, and upkeep comes in time. */
export function askForUpkeep(call: Call<LeaseConf>, held: Held): void {
  try {
    put(call, { dueAt: 0, id: undefined });
    writeHeld(placeOf(call).dir, { ...held, asked: true });
  } catch (thrown) {
    call.log.warn(
      `Cannot ask the daemon to look after blocks at once: ${describeError(thrown)}; it does so every ten minutes`,
    );
  }
}

function put(call: Call<LeaseConf>, { dueAt, id }: { dueAt: number; id: string | undefined }): void {
  const { environment, network } = call;
  const dir = stateDir(environment);
  const { CNI_PATH = '', CATENA_NODE_NAME } = environment;
  const note: UpkeepNote = {
    network,
    ...OWNER,
    boot: bootId(environment),
    // Blocks stay this node's: it takes off the mark of a node that has vanished, and gives back what is empty.
    outlivesBoot: true,
    id: id ?? crypto.randomUUID(),
    dueAt,
    call: {
      env: {
        CNI_CONTAINERID: OWNER.containerId,
        CNI_IFNAME: OWNER.ifname,
        CNI_NETNS: '/proc/self/ns/net',
        CNI_PATH,
        ...(CATENA_NODE_NAME ? { CATENA_NODE_NAME } : {}),
      },
      stdin: requestOf(call),
    },
    state: {},
  };
  withPluginLock(upkeepLockOf(dir, PLUGIN, network), () => putUpkeep(dir, PLUGIN, note));
}

/** The request without what is about one container. */
function requestOf({ request }: Call): string {
  const { prevResult: _, runtimeConfig: __, args: ___, 'cni.dev/valid-attachments': ____, ...rest } = request;
  return JSON.stringify(rest);
}
