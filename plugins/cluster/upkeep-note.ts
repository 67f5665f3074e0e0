// How does the daemon come to look after the blocks of a network?
//
// Its upkeep knows notes about attachments. This one is about all of them: it bears a name that no container has.
import { stateDir } from '../../src/cni/directories.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { bootClock } from '../../src/node/upkeep/boot-clock.ts';
import { findUpkeep, putUpkeep, type UpkeepNote, upkeepLockOf } from '../../src/node/upkeep/note.ts';
import type { Call } from '../../src/plugin/define.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { type Held, writeHeld } from '../../src/pools/held.ts';
import { placeOf } from './claimant.ts';
import type { ClusterConf, LeaseConf } from './config.ts';

/** Name of the directory of notes. */
const PLUGIN = 'cluster';
const OWNER = { containerId: 'blocks-of-this-node', ifname: 'none' };
/** Seconds between two looks, give or take a quarter: nodes that started together must not ask together. */
const INTERVAL_S = 600;
/**
 * Leaves a note if there is none of this boot with this configuration.
 * @param again the note was acted on: the next time is due
 */
export function noteUpkeep(call: Call<LeaseConf>, _conf: ClusterConf, again = false): void {
  const dir = stateDir(call.environment);
  const owner = { network: call.network, ...OWNER };
  const boot = bootId(call.environment);
  const known = findUpkeep(dir, PLUGIN, owner);
  if (!again && known?.boot === boot && known.call.stdin === requestOf(call)) return;
  put(call, { dueAt: bootClock() + INTERVAL_S * (0.75 + Math.random() / 2), id: known?.id });
}

/** Makes the note due now: addresses have become few. */
export function askForUpkeep(call: Call<LeaseConf>, held: Held): void {
  put(call, { dueAt: 0, id: undefined });
  writeHeld(placeOf(call).dir, { ...held, asked: true });
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
