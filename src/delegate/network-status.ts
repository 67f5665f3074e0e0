// How does the runner report which networks a pod has? (Multi-network specification 1.3, section 5)

import { pciDeviceInfo } from '../cni/device-info.ts';
import { defined, isObject, type JsonObject } from '../cni/json.ts';
import {
  CURRENT_VERSION,
  defaultFamilyOf,
  parseResult,
  type ResultInterface,
  type ResultIp,
  spreadGateways,
} from '../cni/result.ts';
import { type Cidr, findCidr, renderCidr, renderIp } from '../net/ip.ts';
import type { NetworkStatus } from './cluster.ts';
import type { PlannedNetwork } from './plan.ts';

/**
 * The status of a network, from what its result says of the interface in the container. A result without interfaces has one too.
 * @param isDefault the pod's default network
 * @param deviceInfo what its device plugin or its plugins tell of its device
 */
export function statusOf(
  { label, attachment }: Pick<PlannedNetwork, 'label' | 'attachment'>,
  result: JsonObject,
  isDefault: boolean,
  deviceInfo?: JsonObject,
): NetworkStatus {
  const { interfaces = [], ips = [], routes = [], dns = {} } = parseResult(result, CURRENT_VERSION);
  const index = indexOfInterface(interfaces, attachment);
  const own = interfaces[index];
  const addresses = ownAddresses(ips, index, own).map(({ ip }) => renderIp(ip));
  const gateway = spreadGateways(routes.filter(defaultFamilyOf)).flatMap(({ gw }) => gw ?? []);
  const name = own?.name ?? (addresses.length ? attachment.ifname : undefined);
  return {
    name: label,
    ...defined({ interface: name }),
    ...(addresses.length ? { ips: addresses } : {}),
    ...(own?.mac ? { mac: own.mac } : {}),
    ...(own?.mtu ? { mtu: own.mtu } : {}),
    ...(isDefault ? { default: true as const } : {}),
    dns,
    ...(gateway.length ? { gateway } : {}),
    ...defined({ 'device-info': deviceInfo ?? deviceInfoOf(own) }),
  };
}

/** Addresses of the interface in the container, with prefix length. */
export function addressesOf(attachment: PlannedNetwork['attachment'], result: JsonObject): readonly string[] {
  const { interfaces = [], ips = [] } = parseResult(result, CURRENT_VERSION);
  const index = indexOfInterface(interfaces, attachment);
  return ownAddresses(ips, index, interfaces[index]).map(renderCidr);
}

function ownAddresses(
  ips: readonly ResultIp[],
  index: number,
  own: ResultInterface | undefined,
): readonly Cidr[] {
  return ips
    .filter(
      ip => ip.interface === undefined || ip.interface < 0 || ip.interface === index || own === undefined,
    )
    .flatMap(({ address }) => findCidr(address) ?? []);
}

/** The attachment's own interface, else the only one in the container, else the last one there. */
function indexOfInterface(
  interfaces: readonly ResultInterface[],
  { ifname, netns }: PlannedNetwork['attachment'],
): number {
  const inside = interfaces.map(({ sandbox }) => sandbox !== undefined && sandbox !== '');
  const own = interfaces.findIndex(
    ({ name, sandbox }, i) => name === ifname && (sandbox === netns || inside[i]),
  );
  return own >= 0 ? own : inside.lastIndexOf(true);
}

/** A result names the socket of a device, too, but not who opens it, which the information must tell. */
function deviceInfoOf(one: ResultInterface | undefined): JsonObject | undefined {
  const { pciID } = isObject(one) ? one : {};
  return pciID ? pciDeviceInfo({ address: pciID }) : undefined;
}
