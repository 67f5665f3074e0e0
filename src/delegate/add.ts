// How does a pod get either all of its networks, or none?

import type { Held, HeldKnown } from '../attachments/store.ts';
import { failuresOf } from '../chain/run/call-plugins.ts';
import { addNetwork } from '../chain/run/run.ts';
import { type CniError, ErrorCode, invalidConfig, invalidEnvironment, tryAgainLater } from '../cni/errors.ts';
import { defined, type JsonObject } from '../cni/json.ts';
import { convertResult, parseResult } from '../cni/result.ts';
import { findCidr, findIp, type Ip, sameIp } from '../net/ip.ts';
import { type PodClaims, readClaims } from './claims.ts';
import { MACHINE_ANNOTATION, type NetworkStatus } from './cluster.ts';
import { DefaultRoutes, editRoutes, interfacesOf } from './default-route.ts';
import { deleteHeldPod, deleteOne, ownNetns, recoverPods } from './delete.ts';
import { placeDeviceInfo, readDeviceInfo, removeDeviceInfo } from './devices.ts';
import { statusOf } from './network-status.ts';
import { advertises, type PlannedNetwork, planNetworks } from './plan.ts';
import {
  listPods,
  type PodContents,
  type PodKey,
  type PodRecord,
  type RecordedNetwork,
  removeMultusNote,
  renderPod,
  withPod,
  writeMultusNote,
} from './record.ts';
import { isOfMachine, type Pod, type Runner, refuseUnready } from './runner.ts';
import { NETWORKS_ANNOTATION } from './selection.ts';
import { annotationsOf, listWanted } from './wanted.ts';

/**
 * Attaches a pod to its networks, the default one first. If one fails, those before it are deleted, last first,
 * and the error is thrown unchanged.
 * @returns the result of the default network, without its default routes if another network has them
 * @throws CniError 11 while the default network is not ready; 7 for mistakes in what is wanted; else the failed plugin's
 */
export async function addPod(runner: Runner, pod: Pod): Promise<JsonObject> {
  try {
    return await attachPod(runner, pod);
  } catch (failure) {
    await runner.tell?.(pod, { failure });
    throw failure;
  }
}

async function attachPod(runner: Runner, pod: Pod): Promise<JsonObject> {
  const { options } = runner;
  refuseUnready(options, ErrorCode.tryAgainLater);
  const annotations = (await runner.fetchAnnotations?.(pod)) ?? annotationsOf(pod);
  const isMachine = annotations[MACHINE_ANNOTATION] !== undefined;
  // Few pods run a virtual machine.
  const moving = isMachine ? await import('./moving.ts') : undefined;
  const isMoving = (await moving?.isMovingTo(runner, pod)) ?? false;
  // Without a daemon the pod that a machine moves to would stay quiet; the one that it leaves must be known to a later daemon.
  const moves = isMoving && runner.isServed === true;
  const claims = await readClaims(runner, pod, listWanted(options, pod, annotations), moves);
  const networks = await planNetworks(options, pod, claims.wanted);
  const shared = isMachine ? networks.filter(({ selection }) => isOfMachine(selection)) : [];
  const ifnames = shared.map(({ attachment }) => attachment.ifname);
  if (isMoving && !moves && ifnames.length) throw unserved(ifnames);
  const quiet = moves ? ifnames : [];
  const machine = runner.again && ifnames.length ? { ifnames, moves, call: runner.again } : undefined;
  claims.refuseForeign(networks);
  const defaults = new DefaultRoutes(networks, options.defaultRoute);
  const key = { network: options.network, ...pod };
  await recoverPods(runner.podsDir, { network: options.network }, runner.runtime);
  return withPod(runner, key, 'add', async held => {
    if (held.known) await settleEarlierAdd(runner, key.netns, held.known);
    refuseTaken(runner, networks);
    const commit = beginPod(runner, key, networks, annotations, machine, held);
    return attachAll(runner, pod, { key, networks, claims, defaults, quiet, commit }, held);
  });
}

/**
 * Deletes what an earlier ADD left that was cut off, or was for another namespace or boot, because no DEL was called for it.
 * @throws CniError 7 when the pod is attached in this same namespace; of what cannot be deleted; 11 when it was attached elsewhere
 */
async function settleEarlierAdd(runner: Runner, netns: string, held: HeldKnown): Promise<void> {
  const { record, past } = held;
  if (past.stands && past.netns(netns) === 'same')
    throw invalidConfig(
      `Cannot attach "${record.ifname}" of container "${record.containerId}": it is already attached; run DEL first`,
      { details: `recorded in "${record.file}"` },
    );
  held.beginDel();
  await deleteHeldPod(runner, record, held, netns);
}

/**
 * Refuses an interface name that already exists: the plugin would fail, and undoing it would delete the existing interface.
 * @throws CniError 4
 */
function refuseTaken(runner: Runner, networks: readonly PlannedNetwork[]): void {
  const ifnames = networks.map(({ attachment }) => attachment.ifname).filter(name => name !== LOOPBACK);
  const name = runner.findTaken(ifnames);
  const taken = networks.find(({ attachment }) => attachment.ifname === name);
  if (taken === undefined) return;
  const { ifname, netns } = taken.attachment;
  const isRuntimes = taken === networks[0];
  throw invalidEnvironment(
    `Cannot attach network "${taken.label}": "${netns}" already has an interface "${ifname}"`,
    {
      details: isRuntimes
        ? `CNI_IFNAME=${JSON.stringify(ifname)}`
        : `name it otherwise: with "interface" of that network, or "interfacePrefix" of network "${runner.options.network}"`,
    },
  );
}

/** Only a daemon lets the pod speak once the machine has arrived, and until then two pods would answer for the addresses. */
function unserved(ifnames: readonly string[]): CniError {
  return tryAgainLater(
    `Cannot attach ${ifnames.join(', ')}: another pod has the addresses until the virtual machine has moved here, and no daemon serves this call`,
    { details: 'start "catena daemon", or try again if it is busy' },
  );
}

/** Every namespace has a loopback interface from the start. */
const LOOPBACK = 'lo';

interface Plan {
  readonly key: PodKey;
  readonly networks: readonly PlannedNetwork[];
  readonly claims: PodClaims;
  readonly defaults: DefaultRoutes;
  /** Interfaces that have addresses of another pod as well. */
  readonly quiet: readonly string[];
  readonly commit: ReturnType<typeof beginPod>;
}

async function attachAll(
  runner: Runner,
  pod: Pod,
  { key, networks, claims, defaults, quiet, commit }: Plan,
  held: Held,
): Promise<JsonObject> {
  const status: NetworkStatus[] = [];
  const results: JsonObject[] = [];
  /** Number of networks that need DEL if a later step fails. */
  let standing = 0;
  let reached = 0;
  let isPublished = false;
  try {
    refuseHeldDevices(runner, key, networks);
    if (quiet.length) await runner.beginQuiet?.(quiet);
    for (const [index, network] of networks.entries()) {
      reached = index;
      held.progress(index);
      const route = (given: JsonObject) => placeDefaultRoutes(runner, network, index, defaults, given);
      const result = await addOne(network, runner.runtime, route).catch(error => {
        if (isPartlyUndone(error)) standing = index + 1;
        throw error;
      });
      standing = index + 1;
      // The version of the runner's list may be too old for what the runtime is to get.
      if (index === 0) convertResult(result, runner.options.version, 'result of the default network');
      results.push(result);
      status.push(statusOf(network, result, index === 0, readDeviceInfo(network)));
    }
    await claims.fill(networks, results);
    await Promise.all([runner.publish?.(pod, status), runner.tell?.(pod, { attached: status })]);
    isPublished = true;
    commit(status);
  } catch (error) {
    const { label, attachment } = networks[reached] as PlannedNetwork;
    const fields = { delegate: label, delegate_ifname: attachment.ifname };
    runner.warn('ADD failed; its attachments are removed', fields);
    await claims.empty();
    if (isPublished) await runner.publish?.(pod, undefined).catch(() => {});
    if (await takeBack(runner, networks.slice(0, reached + 1), standing, held))
      removeMultusNote({ ...runner.runtime, ...key });
    // What failed first is told, on a kernel without nf_tables, too.
    if (quiet.length) await runner.endQuiet?.([]).catch(cause => runner.warn(String(cause)));
    throw error;
  }
  return results[0] as JsonObject;
}

/**
 * ADD of one network.
 * @param route changes its default routes; its result has those that are left
 * @throws CniError of the plugin that fails, 7 for a request that none of them used
 */
export async function addOne(
  network: PlannedNetwork,
  runtime: Runner['runtime'],
  route: (result: JsonObject) => Promise<JsonObject>,
): Promise<JsonObject> {
  placeDeviceInfo(network);
  const amend = (given: JsonObject) => {
    refuseUnheeded(network, given);
    return route(given);
  };
  return addNetwork(network.list, network.attachment, { ...runtime, amend });
}

/** Gives the default route to the network that should have it. @returns the result with the routes that it has then */
async function placeDefaultRoutes(
  runner: Runner,
  { attachment }: PlannedNetwork,
  index: number,
  defaults: DefaultRoutes,
  result: JsonObject,
): Promise<JsonObject> {
  if (defaults.isIdle) return result;
  const ifnames = interfacesOf(result, attachment);
  const routes = await runner.routes();
  const task = defaults.after(index, routes.familiesWithDefault(ifnames));
  if (task.remove.length) routes.removeDefaults(ifnames, task.remove);
  if (task.add.length) routes.addDefaults(attachment.ifname, task.add);
  return editRoutes(result, task);
}

/**
 * Plugins may have ignored a request that was passed in CNI_ARGS only. The container would then be reachable at
 * addresses that nothing expects.
 * @throws CniError 7
 */
function refuseUnheeded({ list, label, selection, attachment }: PlannedNetwork, result: JsonObject): void {
  const { ips = [], mac } = selection.capabilityArgs as { ips?: readonly string[]; mac?: string };
  if (ips.length === 0 && mac === undefined) return;
  const given = parseResult(result, list.version);
  const lost: string[] = [];
  if (!advertises(list, 'ips')) {
    const has = (wanted: Ip) =>
      given.ips?.some(({ address }) => sameIp(findCidr(address)?.ip ?? wanted, wanted)) ?? false;
    lost.push(...ips.filter(text => !has(addressIn(text))));
  }
  if (mac !== undefined && !advertises(list, 'mac')) {
    const own = given.interfaces?.find(({ name, sandbox }) => name === attachment.ifname && sandbox);
    if (own?.mac?.toLowerCase() !== mac) lost.push(mac);
  }
  if (!lost.length) return;
  throw invalidConfig(
    `Cannot give ${lost.map(text => JSON.stringify(text)).join(', ')} to network "${label}": none of its plugins used it`,
    {
      details:
        'addresses go to plugins that declare the capability "ips", hardware addresses to those with "mac"',
    },
  );
}

function addressIn(text: string): Ip {
  return (findCidr(text)?.ip ?? findIp(text)) as Ip;
}

/**
 * Removes what was begun, last first; only the first networks need a DEL. What cannot be removed stays on record for the runtime's DEL.
 * @returns whether all of it was removed
 */
async function takeBack(
  runner: Runner,
  begun: readonly PlannedNetwork[],
  standing: number,
  held: Held,
): Promise<boolean> {
  // The signal that stopped the ADD must not stop its undo.
  const runtime = { ...runner.runtime, signal: undefined };
  const errors = await failuresOf([...begun.entries()].toReversed(), async ([index, network]) => {
    if (index < standing) await deleteOne(network, runtime);
    else removeDeviceInfo(network);
  });
  if (errors.length) held.fail(errors);
  else held.abandon();
  for (const error of errors) runner.warn('a network could not be detached again', { error: String(error) });
  return errors.length === 0;
}

/** Whether the undo of a failed ADD failed too: the chain undoes its plugins, and its error says if it could not. */
function isPartlyUndone(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof AggregateError) return true;
  }
  return false;
}

/**
 * Begins the ADD of a pod whose networks are about to be attached.
 * @returns to be called when all are, with what was published of each: commits it, or throws CniError 5
 * @throws CniError 5
 */
function beginPod(
  { runtime, follow, isSharedWithMultus }: Runner,
  { containerId, netns }: Pick<Pod, 'containerId' | 'netns'>,
  networks: readonly PlannedNetwork[],
  annotations: Readonly<Record<string, string>>,
  machine: PodContents['machine'],
  held: Held,
): (statuses: readonly NetworkStatus[]) => void {
  const { cacheDir, stateDir } = runtime;
  const contents: Omit<PodContents, 'kind'> = {
    cacheDir,
    stateDir,
    networks: networks.map(toRecordedNetwork),
    ...(follow && { follow: { annotation: annotations[NETWORKS_ANNOTATION] ?? '', call: follow } }),
    ...defined({ machine }),
  };
  if (isSharedWithMultus) writeMultusNote({ cacheDir, containerId }, contents.networks);
  held.beginAdd({ netns, args: [], capabilityArgs: {}, source: renderPod(contents), executables: [] }, false);
  held.progress(-1);
  return statuses => {
    const attached = contents.networks.map((one, index) => ({ ...one, status: { ...statuses[index] } }));
    held.commit({ source: renderPod({ ...contents, networks: attached }), result: undefined });
  };
}

export function toRecordedNetwork({
  label,
  list,
  attachment,
  device,
  asked,
}: PlannedNetwork): RecordedNetwork {
  return {
    label,
    network: list.name,
    ifname: attachment.ifname,
    source: list.source,
    args: (attachment.args ?? []).map(([name, value]) => [name, value]),
    capabilityArgs: attachment.capabilityArgs ?? {},
    ...defined({ device: device && { ...device }, asked }),
  };
}

// The kubelet may give a device to the next pod while the networks of the one before are still being detached. Whose record names
// the device, has it.

/**
 * Refuses a device that a record of another pod names, if that pod's namespace still exists. To be called once the pod's own record
 * names its devices, so that of two pods at least one sees the other.
 * @throws CniError 11
 */
export function refuseHeldDevices(runner: Runner, key: PodKey, networks: readonly PlannedNetwork[]): void {
  const wanted = networks.filter(({ device }) => device !== undefined);
  if (wanted.length === 0) return;
  const isOther = ({ record }: PodRecord) =>
    record.containerId !== key.containerId || record.network !== key.network || record.ifname !== key.ifname;
  const others = listPods(runner.podsDir).pods.filter(pod => isOther(pod));
  for (const { device, label } of wanted) {
    const holder = others.find(
      pod =>
        pod.networks.some(
          one => one.device?.id === device?.id && one.device?.resource === device?.resource,
        ) && ownNetns(pod, pod.record.netns, runner.runtime.env) !== '',
    );
    if (holder === undefined) continue;
    throw tryAgainLater(
      `Cannot give device "${device?.id}" to network "${label}": container "${holder.record.containerId}" still has it`,
      { details: `recorded in "${holder.record.file}"; its DEL frees the device` },
    );
  }
}
