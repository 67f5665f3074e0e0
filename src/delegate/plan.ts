// With which inputs is each network of a pod called?
import type { Conflist } from '../chain/config/conflist.ts';
import { NetworkNotFound } from '../chain/config/load.ts';
import type { Attachment } from '../chain/run/runtime.ts';
import { DEVICE_INFO_CAPABILITY } from '../cni/device-info.ts';
import type { CniArgs } from '../cni/env.ts';
import { type CniError, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { defined, type JsonObject, memberOf } from '../cni/json.ts';
import type { Device } from './cluster.ts';
import { deviceInfoArg, PodDevices } from './devices.ts';
import {
  type FoundNetwork,
  findNetwork,
  inject,
  loadPath,
  makeNetwork,
  refuseRecursion,
} from './find-network.ts';
import type { Pod, RunnerOptions, Selection } from './runner.ts';
import { NETWORKS_ARG, type WantedNetwork } from './wanted.ts';

export interface PlannedNetwork {
  /** The name to show to users: `namespace/name` of its definition, else its name. */
  readonly label: string;
  readonly list: Conflist;
  readonly attachment: Attachment;
  readonly selection: Selection;
  /** Allocated to the pod, for this network alone. */
  readonly device?: Device;
  /** As in {@link WantedNetwork}. */
  readonly asked?: string;
}

/** Arguments that apply to one interface only. */
const FOR_ONE = ['IP', 'MAC', 'GATEWAY'];

/**
 * Resolves the wanted networks. Changes nothing, so a mistake in the last network leaves nothing to undo.
 * @throws CniError 7 (a missing network, capability or device, names that collide), 11 (the default network has no
 *   configuration yet, the kubelet does not answer)
 */
export async function planNetworks(
  options: RunnerOptions,
  pod: Pod,
  wanted: readonly WantedNetwork[],
): Promise<PlannedNetwork[]> {
  const ifnames = nameInterfaces(options, pod, wanted);
  const planned: PlannedNetwork[] = [];
  const devices = new PodDevices(options, pod, wanted);
  for (const [index, one] of wanted.entries()) {
    // The daemon that plans serves other pods, too.
    await new Promise<void>(resume => setImmediate(resume));
    planned.push(await planNetwork(options, pod, one, { index, ifname: ifnames[index] as string, devices }));
  }
  return planned;
}

/**
 * Plans one network under a name.
 * @throws CniError as {@link planNetworks}
 */
export async function planNetwork(
  options: RunnerOptions,
  pod: Pod,
  wanted: WantedNetwork,
  { index, ifname, devices }: PositionInPod,
): Promise<PlannedNetwork> {
  const { prevResult, asked, byPod } = wanted;
  const { label, list: found, resource } = await resolveNetwork(options, wanted, index);
  if (byPod) refuseChosen(found, wanted.selection);
  const named = byPod ? wanted.selection.deviceId : undefined;
  const device = await devices.give({ label, resource, named });
  const selection = device ? { ...wanted.selection, deviceId: device.id } : wanted.selection;
  const list = inject(found, selection, byPod);
  refuseMissingCapability(list, selection.capabilityArgs);
  const attachment = {
    containerId: pod.containerId,
    netns: pod.netns,
    ifname,
    args: argsFor(pod, selection, index),
    capabilityArgs: {
      ...capabilityArgsFor(options, pod, selection, { index, list }),
      ...(device || advertises(list, DEVICE_INFO_CAPABILITY)
        ? deviceInfoArg(options.deviceInfoDir, list, { containerId: pod.containerId, ifname })
        : {}),
    },
    ...defined({ prevResult }),
  };
  return { label, list, attachment, selection, ...defined({ device, asked }) };
}

interface PositionInPod {
  /** 0 is the default network. */
  readonly index: number;
  readonly ifname: string;
  readonly devices: PodDevices;
}

/**
 * The network that a wanted one refers to.
 * @param index 0 is the default network, whose file may not be written yet
 * @throws CniError as {@link planNetworks}
 */
export async function resolveNetwork(
  options: RunnerOptions,
  wanted: WantedNetwork,
  index: number,
): Promise<FoundNetwork> {
  const found = await find(options, wanted, index);
  refuseRecursion(found.list, options.ownTypes);
  return found;
}

async function find(
  { places, network, version, policy }: RunnerOptions,
  { selection: { config, name }, namespace, byPod }: WantedNetwork,
  index: number,
): Promise<FoundNetwork> {
  if (config !== undefined) {
    const list = makeNetwork(config, { name, cniVersion: version }, `delegate of network "${network}"`);
    return { label: list.name, list };
  }
  if (name.includes('/')) return loadPath(name);
  try {
    return await findNetwork(places, { namespace, name, byPod, isolated: policy.isolated });
  } catch (error) {
    if (!(error instanceof NetworkNotFound) || index > 0) throw error;
    const { message, details } = error;
    throw tryAgainLater(message, { ...(details ? { details } : {}), cause: error });
  }
}

/** The runtime names the default network's interface, selections may name theirs, and the others are numbered. */
function nameInterfaces(
  { interfacePrefix }: RunnerOptions,
  pod: Pod,
  wanted: readonly WantedNetwork[],
): readonly string[] {
  const asked = wanted.map(({ selection }, i) => (i === 0 ? pod.ifname : selection.ifname));
  const first = wanted[0]?.selection;
  if (first?.ifname !== undefined && first.ifname !== pod.ifname) {
    throw invalid(
      `Cannot name the interface of the default network "${first.ifname}": the runtime names it "${pod.ifname}"`,
    );
  }
  const taken = new Set<string>();
  for (const name of asked) {
    if (name === undefined) continue;
    if (taken.has(name)) throw invalid(`Cannot name two interfaces "${name}": names must differ`);
    taken.add(name);
  }
  return asked.map((name, index) => {
    if (name !== undefined) return name;
    let number = index;
    while (taken.has(`${interfacePrefix}${number}`)) number++;
    const free = `${interfacePrefix}${number}`;
    taken.add(free);
    return free;
  });
}

/** Addresses that the runtime requests are for the default network: a second interface cannot have the same ones. */
function argsFor({ args }: Pod, { capabilityArgs }: Selection, index: number): CniArgs {
  const { ips, mac } = capabilityArgs as { ips?: readonly string[]; mac?: string };
  const own: CniArgs = [
    ...(mac === undefined ? [] : [['MAC', mac] as const]),
    ...(ips === undefined ? [] : [['IP', ips.join(',')] as const]),
  ];
  const replaced = own.map(([key]) => key);
  const passed = args.filter(
    ([key]) => key !== NETWORKS_ARG && !replaced.includes(key) && (index === 0 || !FOR_ONE.includes(key)),
  );
  // Plugins refuse unknown arguments without IgnoreUnknown.
  const lenient = !own.length || passed.some(([key]) => key === 'IgnoreUnknown');
  return [...(lenient ? [] : [['IgnoreUnknown', '1'] as const]), ...passed, ...own];
}

function capabilityArgsFor(
  { runtimeConfigFor }: RunnerOptions,
  pod: Pod,
  { capabilityArgs, deviceId, getsRuntimeConfig }: Selection,
  { index, list }: { index: number; list: Conflist },
): JsonObject {
  const isNamed = Array.isArray(runtimeConfigFor) && runtimeConfigFor.includes(list.name);
  const gets = getsRuntimeConfig ?? (index === 0 || runtimeConfigFor === 'all' || isNamed);
  return {
    ...(gets ? pod.capabilityArgs : {}),
    ...capabilityArgs,
    ...defined({ deviceID: deviceId }),
  };
}

/** Capabilities that a plugin may also get in CNI_ARGS: only the result shows whether it honoured them. */
const ALSO_BY_ARGS = ['ips', 'mac'];

/** True if some plugin of the network declares the capability. */
export function advertises(list: Conflist, capability: string): boolean {
  return list.plugins.some(({ capabilities }) => capabilities[capability] === true);
}

function refuseMissingCapability(list: Conflist, requests: JsonObject): void {
  const missing = Object.keys(requests).find(key => !ALSO_BY_ARGS.includes(key) && !advertises(list, key));
  if (missing === undefined) return;
  const types = list.plugins.map(({ type }) => `"${type}"`).join(', ');
  throw invalid(
    `Cannot give ${JSON.stringify(missing)} to network "${list.name}": none of its plugins (${types}) has that capability`,
    JSON.stringify(requests[missing]),
  );
}

/** Options that choose a device, of our plugins and of those for SR-IOV. */
const DEVICE_OPTIONS = ['deviceID', 'pciBusID', 'device', 'hwaddr', 'kernelpath'];

/** What a list says itself is not for its pods to choose: the device, or without the capability the hardware address. */
function refuseChosen({ name, plugins }: Conflist, { deviceId, capabilityArgs: { mac } }: Selection): void {
  const asked = [
    { key: 'deviceID', value: deviceId, options: DEVICE_OPTIONS },
    { key: 'mac', value: mac, options: ['mac'] },
  ].filter(({ value }) => value !== undefined);
  for (const { type, conf, capabilities } of plugins) {
    for (const { key, value, options } of asked) {
      const fixed = options.find(option => memberOf(conf, option));
      if (fixed === undefined || (key === 'mac' && capabilities.mac)) continue;
      throw invalid(
        `Cannot give ${JSON.stringify(key)} of a pod to network "${name}": its plugin "${type}" has ${JSON.stringify(fixed)} already`,
        JSON.stringify(value),
      );
    }
  }
}

function invalid(message: string, details?: string): CniError {
  return invalidConfig(message, defined({ details }));
}
