// What does the record hold of a device, and how does the device get it back?
import { describeError } from '../../src/cni/errors.ts';
import { parseCidr, renderCidr } from '../../src/net/cidr.ts';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import { isNetlinkError, NetlinkError } from '../../src/netlink/errors.ts';
import {
  type Address,
  IFA_F_PERMANENT,
  listAddresses,
  RT_SCOPE_LINK,
  restoreAddress,
} from '../../src/netlink/rtnl/addr.ts';
import { addAltNameRequest, type Link, setLinkRequest } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { addRoute, listRoutes, type Route } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { Errno } from '../../src/sys/errno.ts';
import type { DeviceRecord, RecordedAddress, RecordedRoute } from './record.ts';

/** linux/rtnetlink.h */
const RT_TABLE_LOCAL = 255;
const RTPROT_KERNEL = 2;
const RTPROT_RA = 9;

/** What a device loses when it is moved to another namespace. */
export type DeviceState = Pick<
  DeviceRecord,
  | 'name'
  | 'ifindex'
  | 'kind'
  | 'mac'
  | 'permanentMac'
  | 'parent'
  | 'altNames'
  | 'alias'
  | 'up'
  | 'mtu'
  | 'txqlen'
  | 'addresses'
  | 'routes'
>;

/** Reads everything that the record holds of a device. Same as: `ip -d link show`, `ip addr show`, `ip route show table all` */
export function capture(host: NetlinkSocket, link: Link): DeviceState {
  const { alias, permAddress, parentDevName, parentDevBusName, propList, txqlen } = link.attrs;
  return {
    name: link.name,
    ifindex: link.index,
    kind: link.kind,
    mac: link.mac,
    permanentMac: permAddress,
    parent: parentDevName === undefined ? undefined : { bus: parentDevBusName, name: parentDevName },
    altNames: [...(propList ?? [])],
    alias,
    up: Boolean(link.flags & IFF_UP),
    mtu: link.mtu,
    txqlen,
    addresses: listAddresses(host, link.index).filter(isLasting).map(recordAddress),
    routes: listRoutes(host)
      .filter(route => isOwn(route, link.index))
      .map(recordRoute)
      .sort(narrowFirst),
  };
}

/**
 * Gives a device on the host what the record has, apart from its name. Every part is attempted.
 * @returns what could not be restored, human-readable
 */
export function restore(host: NetlinkSocket, link: Link, record: DeviceRecord): string[] {
  const { mac, mtu, txqlen, up } = record;
  const missing = record.altNames.filter(name => !link.attrs.propList?.includes(name));
  const requests = [
    setLinkRequest(link.index, { alias: record.alias ?? '' }),
    ...(mac !== undefined && mac !== link.mac ? [setLinkRequest(link.index, { mac })] : []),
    ...(mtu === link.mtu ? [] : [setLinkRequest(link.index, { mtu })]),
    ...(txqlen === undefined || txqlen === link.attrs.txqlen ? [] : [setLinkRequest(link.index, { txqlen })]),
    ...missing.map(name => addAltNameRequest(link.index, name)),
    ...(up ? [setLinkRequest(link.index, { up })] : []),
  ];
  const outcomes = host.attemptAll(requests);
  return [
    ...outcomes.flatMap(outcome => (outcome instanceof NetlinkError ? [outcome.message] : [])),
    ...record.addresses.flatMap(address =>
      attempt(() => restoreAddress(host, addressOf(address, link.index))),
    ),
    // A device that is down has no routes.
    ...(up ? record.routes.flatMap(route => attempt(() => addRoute(host, routeOf(route, link.index)))) : []),
  ];
}

/** The address as the kernel takes it. */
export function addressOf(
  { address, scope, broadcast, label, flags }: RecordedAddress,
  index: number,
): Address {
  return {
    index,
    cidr: parseCidr(address),
    flags,
    scope,
    broadcast: broadcast === undefined ? undefined : parseIp(broadcast),
    label,
  };
}

/** The route as the kernel takes it. */
export function routeOf(route: RecordedRoute, oif: number): Route {
  const { dst, gateway, source, table, scope, priority, mtu, advmss, protocol } = route;
  return {
    dst: parseCidr(dst),
    gateway: gateway === undefined ? undefined : parseIp(gateway),
    oif,
    source: source === undefined ? undefined : parseIp(source),
    ...{ table, scope, priority, mtu, advmss, protocol },
  };
}

/** Leased and advertised addresses come from a program or a router, which gives them again; so does the kernel its own. */
function isLasting({ cidr, flags, scope }: Address): boolean {
  return Boolean(flags & IFA_F_PERMANENT) && !(cidr.ip.family === 6 && scope === RT_SCOPE_LINK);
}

function isOwn({ oif, ways, table, protocol }: Route, index: number): boolean {
  if (oif !== index || ways !== undefined || table === RT_TABLE_LOCAL) return false;
  return protocol !== RTPROT_KERNEL && protocol !== RTPROT_RA;
}

function recordAddress({ cidr, flags, scope, broadcast, label }: Address): RecordedAddress {
  const text = broadcast && renderIp(broadcast);
  return { address: renderCidr(cidr), scope, flags, broadcast: text, label };
}

function recordRoute(route: Route): RecordedRoute {
  const { dst, gateway, source, table = 0, scope = 0, priority, mtu, advmss, protocol } = route;
  return {
    dst: renderCidr(dst),
    gateway: gateway && renderIp(gateway),
    source: source && renderIp(source),
    ...{ table, scope, priority, mtu, advmss, protocol },
  };
}

/** A gateway must be reachable before a route uses it: narrow scopes first, and within one scope those without a gateway. */
function narrowFirst(a: RecordedRoute, b: RecordedRoute): number {
  return b.scope - a.scope || Number(a.gateway !== undefined) - Number(b.gateway !== undefined);
}

function attempt(step: () => void): string[] {
  try {
    step();
    return [];
  } catch (thrown) {
    return isNetlinkError(thrown, Errno.EEXIST) ? [] : [describeError(thrown)];
  }
}
