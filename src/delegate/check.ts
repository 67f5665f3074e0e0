// Are all networks of a pod still attached, and could another pod be attached?
import { findHolder, type KnownAttachment, pastOf, readAttachment } from '../attachments/store.ts';
import { failuresOf, joinErrors } from '../chain/run/call-plugins.ts';
import { checkNetwork, networkStatus } from '../chain/run/run.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { CniError, ErrorCode, tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { atLeast, SINCE } from '../cni/result.ts';
import { listUnrecorded } from './delete.ts';
import { resolveNetwork } from './plan.ts';
import { type PodKey, parsePod, recall, runtimeOf } from './record.ts';
import { type Runner, refuseUnready } from './runner.ts';
import { listConfigured } from './wanted.ts';

/**
 * Calls CHECK of every network on record, each with the inputs of its own ADD. Networks of a version without CHECK are skipped. Without a
 * record the result cache tells which they are.
 * @throws CniError 3 when neither names one; 11 while another process attaches or detaches the pod; of the network that fails, or
 *   one that joins several
 */
export async function checkPod(runner: Runner, key: PodKey, netns: string): Promise<void> {
  const record = readAttachment({ journals: [runner.podsDir] }, key);
  if (record === undefined) {
    const cached = listUnrecorded(runner, key.containerId);
    if (cached.length === 0) throw unknownPod(runner, key);
    const calls = cached.map(one => () => recall(one, one, netns));
    return refuseAny(key, await checkAll(calls, runner.runtime));
  }
  if (!pastOf(record, runner.runtime.env).stands) refuseHeld(runner, record);
  const pod = parsePod(record);
  // What was cut off is completed by the daemon, and what is in progress by its process.
  const settled = pod.networks.filter(({ state }) => state === undefined);
  const calls = settled.map(one => () => recall(record, one, netns));
  const errors = await checkAll(calls, runtimeOf(runner, pod));
  // A DEL or a change may have begun during the check, or be over.
  if (errors.length) {
    const now = readAttachment({ journals: [runner.podsDir] }, key);
    if (now === undefined) throw unknownPod(runner, key);
    refuseHeld(runner, now);
  }
  refuseAny(key, errors);
}

/** CHECK of each, also after one has failed. @returns the errors */
function checkAll(
  networks: readonly (() => ReturnType<typeof recall>)[],
  runtime: ChainRuntime,
): Promise<unknown[]> {
  return failuresOf(networks, async recalled => {
    const { list, attachment } = recalled();
    if (atLeast(list.version, SINCE.check)) await checkNetwork(list, attachment, runtime);
  });
}

function refuseAny({ containerId }: PodKey, errors: readonly unknown[]): void {
  if (errors.length) throw joinErrors(`Cannot confirm the networks of container "${containerId}"`, errors);
}

function unknownPod({ podsDir }: Runner, { ifname, containerId, network }: PodKey): CniError {
  return new CniError(
    ErrorCode.unknownContainer,
    `Cannot check interface "${ifname}" of container "${containerId}" on network "${network}": no ADD is recorded in "${podsDir}"`,
  );
}

/** What is missing while a process works on the pod is no damage. @throws CniError 11 */
function refuseHeld({ podsDir, runtime }: Runner, record: KnownAttachment): void {
  const holder = findHolder({ stateDir: podsDir, env: runtime.env }, record);
  if (holder === undefined) return;
  const { ifname, containerId } = record;
  throw tryAgainLater(
    `Cannot check interface "${ifname}" of container "${containerId}": process ${holder.pid} is working on it`,
  );
}

/**
 * Calls STATUS of every network that the configuration names.
 * @throws CniError 50 when the default network is not ready; of the network that is not, or one that joins several
 */
export async function runnerStatus(runner: Runner): Promise<void> {
  const { options, runtime } = runner;
  refuseUnready(options, ErrorCode.unavailable);
  const errors = await failuresOf(listConfigured(options).entries(), async ([index, wanted]) => {
    const { list } = await resolveNetwork(options, wanted, index);
    await networkStatus(list, runtime);
  });
  if (errors.length) throw joinErrors(`Cannot serve network "${options.network}"`, errors.map(asStatus));
}

/** Replaces ADD's code for "try again later" by the one that STATUS has for it. */
function asStatus(error: unknown): unknown {
  if (!(error instanceof CniError && error.code === ErrorCode.tryAgainLater)) return error;
  const { message, details, plugin } = error;
  return new CniError(ErrorCode.unavailable, message, { ...defined({ details, plugin }), cause: error });
}
