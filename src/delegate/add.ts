// How does a pod get all of its networks, or none?
import type { AddRecord } from '../chain/add-record.ts';
import { readAttachment, writeAttachment } from '../chain/result-cache.ts';
import { addNetwork, deleteNetwork } from '../chain/run.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { parseResult } from '../cni/result.ts';
import { findCidr } from '../net/cidr.ts';
import { findIp, type Ip, sameIp } from '../net/ip.ts';
import { type PodClaims, readClaims } from './claims.ts';
import { DefaultRoutes, editRoutes, interfacesOf } from './default-route.ts';
import { clearTheWay } from './earlier.ts';
import { type NetworkStatus, statusOf } from './network-status.ts';
import type { Pod } from './options.ts';
import { advertises, type PlannedNetwork, planNetworks } from './plan.ts';
import { beginPod } from './record.ts';
import { recoverPods } from './recover.ts';
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
  const claims = await readClaims(runner, pod, listWanted(options, pod, annotations));
  const networks = await planNetworks(options, pod, claims.wanted);
  claims.refuseForeign(networks);
  const defaults = new DefaultRoutes(networks, options.defaultRoute);
  const key = { network: options.network, ...pod };
  await recoverPods(runner.podsDir, { network: options.network }, runner.runtime);
  await clearTheWay(runner, key);
  refuseTaken(runner, networks);
  return attachAll(runner, pod, { networks, claims, defaults }, beginPod(runner, key, networks));
}

/**
 * A link that finds the name of its interface taken fails, and undoing it would delete what was there before.
 * @throws CniError 4
 */
function refuseTaken(runner: Runner, networks: readonly PlannedNetwork[]): void {
  const ifnames = networks.map(({ attachment }) => attachment.ifname).filter(name => name !== LOOPBACK);
  const name = runner.findTaken(ifnames);
  const taken = networks.find(({ attachment }) => attachment.ifname === name);
  if (taken === undefined) return;
  const { ifname, netns } = taken.attachment;
  throw new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot attach network "${taken.label}": "${netns}" has an interface "${ifname}" already`,
    { details: `CNI_IFNAME=${JSON.stringify(ifname)}` },
  );
}

/** Every namespace has one from the start. */
const LOOPBACK = 'lo';

/** What is to be attached. */
interface Plan {
  readonly networks: readonly PlannedNetwork[];
  readonly claims: PodClaims;
  readonly defaults: DefaultRoutes;
}

async function attachAll(
  runner: Runner,
  pod: Pod,
  { networks, claims, defaults }: Plan,
  record: AddRecord,
): Promise<JsonObject> {
  const status: NetworkStatus[] = [];
  const results: JsonObject[] = [];
  /** Networks that DEL must be run for, should anything fail from here on. */
  let standing = 0;
  let reached = 0;
  let isPublished = false;
  try {
    for (const [index, network] of networks.entries()) {
      reached = index;
      const given = await addNetwork(network.list, network.attachment, runner.runtime).catch(error => {
        if (isPartlyUndone(error)) standing = index + 1;
        throw error;
      });
      standing = index + 1;
      refuseUnheeded(network, given);
      const result = await settleRoutes(runner, network, index, defaults, given);
      results.push(result);
      status.push(statusOf(network, result, index === 0));
      record.link(index, { ...status[index] });
    }
    await claims.fill(networks, results);
    await runner.publish?.(pod, status);
    isPublished = true;
    record.done();
  } catch (error) {
    record.linkFailed(reached, error);
    const { label, attachment } = networks[reached] as PlannedNetwork;
    const fields = { delegate: label, delegate_ifname: attachment.ifname };
    runner.warn('ADD failed; what it attached is removed', fields);
    await claims.empty();
    if (isPublished) await runner.publish?.(pod, undefined).catch(() => {});
    await takeBack(runner, networks.slice(0, standing), record);
    throw error;
  }
  return results[0] as JsonObject;
}

/** Gives the default route to whom it belongs; the record that CHECK and DEL go by says the same. */
async function settleRoutes(
  runner: Runner,
  { list, attachment }: PlannedNetwork,
  index: number,
  defaults: DefaultRoutes,
  result: JsonObject,
): Promise<JsonObject> {
  if (defaults.isIdle) return result;
  const { ifname, containerId } = attachment;
  const ifnames = interfacesOf(result, attachment);
  const routes = await runner.routes();
  const task = defaults.after(index, routes.familiesWithDefault(ifnames));
  if (task.remove.length) routes.removeDefaults(ifnames, task.remove);
  if (task.add.length) routes.addDefaults(ifname, task.add);
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
async function takeBack(
  runner: Runner,
  standing: readonly PlannedNetwork[],
  record: AddRecord,
): Promise<void> {
  // What stopped the ADD must not stop its undoing.
  const runtime = { ...runner.runtime, signal: undefined };
  const errors: unknown[] = [];
  for (const { list, attachment } of standing.toReversed()) {
    await deleteNetwork(list, attachment, runtime).catch(error => errors.push(error));
  }
  if (!errors.length) return record.drop();
  record.fail(errors);
  for (const error of errors) runner.warn('a network could not be removed again', { error: String(error) });
}

/** The chain takes back the links of an ADD that fails, and its error tells when it could not. */
function isPartlyUndone(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof AggregateError) return true;
  }
  return false;
}
