// Which addresses, gateways and routes follow from the configuration and the IPAM result?

import {
  type ContainerAddressing,
  firstGateway,
  type PlannedIp,
  planRoute,
} from '../../src/attach/addressing.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { defaultFamilyOf, type Result, type ResultRoute, spreadGateways } from '../../src/cni/result.ts';
import {
  ANYWHERE,
  type Cidr,
  FAMILIES,
  type Ip,
  isSmallest,
  lastOf,
  networkOf,
  offsetIp,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
} from '../../src/net/ip.ts';
import type { VlanRange } from '../../src/netlink/rtnl/bridge-vlan.ts';
import { type BridgeConf, wantsGateway } from './config.ts';

/** Index of the container's interface in the result; the bridge and the host end of the veth pair precede it. */
export const CONTAINER_INTERFACE = 2;

/** The layer 3 configuration of an attachment. */
export interface Addressing extends ContainerAddressing {
  /** Addresses that the bridge answers for, with the containers' prefix length. */
  readonly gateways: readonly Cidr[];
  /** The routes for the result: those from IPAM, then the default routes that we add. */
  readonly resultRoutes: readonly ResultRoute[];
}

/**
 * Derives the addressing of an attachment. A gateway that IPAM left out becomes the first address of the subnet, or the other one of two; one default
 * route is added per family, and a route without a gateway uses the gateway of its family.
 * @throws CniError when IPAM gave no address, or text that is not one
 */
export function planAddressing(conf: BridgeConf, ipam: Result): Addressing {
  const onHost = wantsGateway(conf);
  const ips = (ipam.ips ?? []).map(({ address, gateway }) => {
    const cidr = parseCidr(address);
    const own = gateway ? parseIp(gateway) : undefined;
    return { cidr, gateway: own ?? (onHost ? usualGateway(cidr) : undefined) };
  });
  if (ips.length === 0) {
    throw invalidConfig(`Cannot attach container: IPAM plugin "${conf.ipam?.type}" returned no address`);
  }
  const resultRoutes = conf.isDefaultGateway
    ? withDefaultRoutes(ipam.routes ?? [], ips)
    : (ipam.routes ?? []);
  return {
    ips,
    gateways: onHost ? gatewaysOf(ips) : [],
    routes: spreadGateways(resultRoutes).map(route => planRoute(route, ips)),
    resultRoutes,
  };
}

/** The first address of the subnet, or the other one of two. @throws CniError 7 when there is no other */
function usualGateway(cidr: Cidr): Ip {
  if (!isSmallest(cidr)) return offsetIp(networkOf(cidr), 1n);
  const other = [networkOf(cidr), lastOf(cidr)].find(ip => !sameIp(ip, cidr.ip));
  if (other) return other;
  throw invalidConfig(
    `Cannot add gateway of ${renderCidr(cidr)}: a subnet of one address has no room for it; set "gateway" in "ipam"`,
  );
}

/** The addressing that an earlier ADD reported, for CHECK and DEL. */
export function addressingOf(conf: BridgeConf, prevResult: Result): Addressing {
  const own = prevResult.interfaces?.findIndex(one => one.sandbox);
  const ips = (prevResult.ips ?? []).filter(ip => ip.interface === undefined || ip.interface === own);
  return planAddressing(
    { ...conf, isDefaultGateway: false, isGateway: wantsGateway(conf) },
    { ...prevResult, ips },
  );
}

/**
 * Adds a default route for each family that has a gateway. A default route that IPAM gave without a gateway is completed, not
 * duplicated: the reference installs both and fails with EEXIST.
 */
function withDefaultRoutes(routes: readonly ResultRoute[], ips: readonly PlannedIp[]): ResultRoute[] {
  const completed = routes.map(route => ({ ...route }));
  for (const family of FAMILIES) {
    const gateway = firstGateway(ips, family);
    if (gateway === undefined) continue;
    const existing = completed.find(route => defaultFamilyOf(route) === family);
    if (existing === undefined) completed.push({ dst: ANYWHERE[family], gw: renderIp(gateway) });
    else if (!existing.gws?.length) existing.gw ??= renderIp(gateway);
  }
  return completed;
}

function gatewaysOf(ips: readonly PlannedIp[]): Cidr[] {
  const gateways: Cidr[] = [];
  for (const { cidr, gateway } of ips) {
    if (gateway === undefined) continue;
    const known = gateways.some(({ ip, prefix }) => prefix === cidr.prefix && ip.value === gateway.value);
    if (!known) gateways.push({ ip: gateway, prefix: cidr.prefix });
  }
  return gateways;
}

/** The VLAN changes to make on a port. */
export interface VlanPlan {
  /** Whether the port leaves the bridge's default VLAN first. */
  readonly leavesDefault: boolean;
  /** VLANs of the port, the untagged one first. */
  readonly vlans: readonly VlanRange[];
}

/** VLAN of untagged frames when only tagged ones are requested: the default VLAN of bridges. */
const DEFAULT_VLAN = 1;

/** True when the bridge must filter VLANs; an empty `vlanTrunk` requests this too (reference behaviour). */
export function wantsFiltering({ vlan, vlanTrunk }: BridgeConf): boolean {
  return vlan !== 0 || vlanTrunk !== undefined;
}

/**
 * The VLANs of the container's port, or undefined when the configuration does not set any. The native VLAN stays untagged even if
 * the trunk names it; in the reference the order decides.
 */
export function planVlans(conf: BridgeConf): VlanPlan | undefined {
  const tagged = tagsOf(conf);
  if (conf.vlan === 0 && tagged.size === 0) return undefined;
  const native = conf.vlan || DEFAULT_VLAN;
  tagged.delete(native);
  const ids = [...tagged].sort((a, b) => a - b);
  return {
    leavesDefault: !conf.preserveDefaultVlan,
    vlans: [nativeVlan(native), ...rangesOf(ids)],
  };
}

/** The VLAN of untagged frames, in both directions. */
export function nativeVlan(id: number): VlanRange {
  return { first: id, last: id, pvid: true, untagged: true };
}

/** One string per range, ordered by number: `100 pvid untagged`, `200-210`. */
export function renderVlans(vlans: readonly VlanRange[]): string[] {
  const ordered = [...vlans].sort((a, b) => a.first - b.first);
  return ordered.map(({ first, last, pvid, untagged }) =>
    [
      first === last ? first : `${first}-${last}`,
      ...(pvid ? ['pvid'] : []),
      ...(untagged ? ['untagged'] : []),
    ].join(' '),
  );
}

function tagsOf({ vlanTrunk = [] }: BridgeConf): Set<number> {
  const ids = new Set<number>();
  for (const { id, minID, maxID } of vlanTrunk) {
    if (id !== undefined) ids.add(id);
    if (minID === undefined || maxID === undefined) continue;
    for (let one = minID; one <= maxID; one++) ids.add(one);
  }
  return ids;
}

/** Merges adjacent ids into ranges, so that a trunk of thousands is a message of a few entries. */
function rangesOf(ids: readonly number[]): VlanRange[] {
  const ranges: { first: number; last: number; pvid: boolean; untagged: boolean }[] = [];
  for (const id of ids) {
    const previous = ranges.at(-1);
    if (previous?.last === id - 1) previous.last = id;
    else ranges.push({ first: id, last: id, pvid: false, untagged: false });
  }
  return ranges;
}
