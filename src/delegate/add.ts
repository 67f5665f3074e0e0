// How does a pod get all of its networks, or none?
import { readAttachment, writeAttachment } from '../chain/result-cache.ts';
import { addNetwork } from '../chain/run.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { parseResult } from '../cni/result.ts';
import { findCidr } from '../net/cidr.ts';
import { findIp, type Ip, sameIp } from '../net/ip.ts';
import { DefaultRoutes, editRoutes, interfacesOf } from './default-route.ts';
import { deletePod, deleteRecorded } from './delete.ts';
import { type NetworkStatus, statusOf } from './network-status.ts';
import type { Pod } from './options.ts';
import { advertises, type PlannedNetwork, planNetworks } from './plan.ts';
import { netnsIdOf, type PodKey, type PodRecord, readRecord, toRecord, writeRecord } from './record.ts';
import { type Runner, refuseUnready } from './runner.ts';
import { annotationsOf, listWanted } from './wanted.ts';

/**
 * Attaches a pod to its networks, the default one first. When one fails, those before it are deleted, last first,
 * and the error is thrown as it came.
 * @returns the result of the default network, without the default routes that another network has
 * @throws CniError 11 while the default network is not ready; 7 for mistakes in what is wanted; else the failed link's
 */
export async function addPod(runner: Runner, pod: Pod): Promise<JsonObject> {
  const { options } = runner;
  refuseUnready(options, ErrorCode.tryAgainLater);
  const annotations = (await runner.fetchAnnotations?.(pod)) ?? annotationsOf(pod);
  const networks = await planNetworks(options, pod, listWanted(options, pod, annotations));
  const defaults = new DefaultRoutes(networks, options.defaultRoute);
  const key = { network: options.network, ...pod };
  await clearEarlier(runner, key);
  const { pluginDirs, cacheDir } = runner.runtime;
  const record = toRecord(key, networks, { pluginDirs: [...pluginDirs], cacheDir });
  writeRecord(runner.recordDir, record);
  return attachAll(runner, pod, networks, defaults, record);
}

/**
 * An ADD on record of a namespace that is gone was not followed by a DEL, as after a reboot: that is made up for.
 * @throws CniError 7 when the interface is attached in this very namespace
 */
async function clearEarlier(runner: Runner, key: PodKey & { netns: string }): Promise<void> {
  const earlier = findEarlier(runner, key);
  if (earlier === undefined) return;
  if (earlier !== 'damaged' && earlier.netnsId === netnsIdOf(key.netns)) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot attach "${key.ifname}" of container "${key.containerId}": it is attached already; run DEL first`,
      { details: `networks: ${earlier.networks.map(({ label }) => label).join(', ')}` },
    );
  }
  await deletePod(runner, key, '').catch(error =>
    runner.warn('what an earlier ADD left could not be removed', { error: String(error) }),
  );
}

function findEarlier({ recordDir }: Runner, key: PodKey): PodRecord | 'damaged' | undefined {
  try {
    return readRecord(recordDir, key);
  } catch {
    return 'damaged';
  }
}

async function attachAll(
  runner: Runner,
  pod: Pod,
  networks: readonly PlannedNetwork[],
  defaults: DefaultRoutes,
  record: PodRecord,
): Promise<JsonObject> {
  const results: JsonObject[] = [];
  /** Networks that DEL must be run for, should anything fail from here on. */
  let standing = 0;
  let current: PlannedNetwork | undefined;
  try {
    for (const [index, network] of networks.entries()) {
      current = network;
      const result = await addNetwork(network.list, network.attachment, runner.runtime).catch(error => {
        if (isPartlyUndone(error)) standing = index + 1;
        throw error;
      });
      standing = index + 1;
      refuseUnheeded(network, result);
      results.push(settleRoutes(runner, network, index, defaults, result));
    }
    const status = networks.map((network, i) => statusOf(network, results[i] as JsonObject, i === 0));
    writeRecord(runner.recordDir, withStatus(record, status));
    await runner.publish?.(pod, status);
  } catch (error) {
    runner.warn('ADD failed; the networks before it are removed', {
      delegate: current?.label,
      delegate_ifname: current?.attachment.ifname,
    });
    await takeBack(runner, pod, record, standing);
    throw error;
  }
  return results[0] as JsonObject;
}

/** Gives the default route to whom it belongs; the record that CHECK and DEL go by says the same. */
function settleRoutes(
  runner: Runner,
  { list, attachment }: PlannedNetwork,
  index: number,
  defaults: DefaultRoutes,
  result: JsonObject,
): JsonObject {
  if (defaults.isIdle) return result;
  const { netns, ifname, containerId } = attachment;
  const ifnames = interfacesOf(result, attachment);
  const { routes } = runner;
  const task = defaults.after(index, routes.familiesWithDefault(netns, ifnames));
  if (task.remove.length) routes.removeDefaults(netns, ifnames, task.remove);
  if (task.add.length) routes.addDefaults(netns, ifname, task.add);
  const edited = editRoutes(result, task);
  if (edited === result) return result;
  const { cacheDir } = runner.runtime;
  const cached = readAttachment(cacheDir, { network: list.name, containerId, ifname });
  if (cached) writeAttachment(cacheDir, { ...cached, result: edited });
  return edited;
}

/**
 * What was asked for by CNI_ARGS alone may have been passed by: then the container would be reachable where nobody
 * looks for it.
 * @throws CniError 7
 */
function refuseUnheeded({ list, label, selection, attachment }: PlannedNetwork, result: JsonObject): void {
  const { ips = [], mac } = selection.capabilityArgs as { ips?: readonly string[]; mac?: string };
  const given = parseResult(result, list.version);
  const lost: string[] = [];
  if (!advertises(list, 'ips')) {
    const has = (wanted: Ip) =>
      given.ips?.some(({ address }) => sameIp(findCidr(address)?.ip ?? wanted, wanted)) ?? false;
    lost.push(...ips.filter(text => !has(addressIn(text))));
  }
  if (mac !== undefined && !advertises(list, 'mac')) {
    const own = given.interfaces?.find(({ name, sandbox }) => name === attachment.ifname && sandbox);
    if (own?.mac?.toLowerCase() !== mac.toLowerCase().replaceAll('-', ':')) lost.push(mac);
  }
  if (!lost.length) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot give ${lost.map(text => JSON.stringify(text)).join(', ')} to network "${label}": none of its plugins took it`,
    {
      details: 'plugins take addresses that declare the capability "ips", and hardware addresses with "mac"',
    },
  );
}

function addressIn(text: string): Ip {
  return (findCidr(text)?.ip ?? findIp(text)) as Ip;
}

/** Removes what stands, last first. What cannot be removed stays on record for the runtime's DEL. */
async function takeBack(runner: Runner, pod: Pod, record: PodRecord, standing: number): Promise<void> {
  // What stopped the ADD must not stop its undoing.
  const undeterred = { ...runner, runtime: { ...runner.runtime, signal: undefined } };
  const begun = { ...record, networks: record.networks.slice(0, standing) };
  const errors = await deleteRecorded(undeterred, begun, pod.netns);
  for (const error of errors) runner.warn('a network could not be removed again', { error: String(error) });
}

/** The chain takes back the links of an ADD that fails, and its error tells when it could not. */
function isPartlyUndone(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof AggregateError) return true;
  }
  return false;
}

function withStatus(record: PodRecord, status: readonly NetworkStatus[]): PodRecord {
  return { ...record, networks: record.networks.map((one, i) => ({ ...one, status: { ...status[i] } })) };
}
