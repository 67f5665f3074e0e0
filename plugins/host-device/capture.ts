// What does the record hold of a device, and how does the device get it back?
//
// Addresses and routes are kept as the kernel's own messages, and sent back with the index that the device has then: what this program
// has no name for comes home as well.

import { renderCidr, renderIp } from '../../src/net/ip.ts';
import { attrs, type Field, type Request, s32, u8, u32, Writer } from '../../src/netlink/codec.ts';
import {
  type Address,
  decodeAddress,
  IFA_F_NODAD,
  IFA_F_PERMANENT,
  IFAPROT_KERNEL_LL,
  listAddressMessages,
  RT_SCOPE_LINK,
  restoreAddress,
} from '../../src/netlink/rtnl/addr.ts';
import {
  addAltNameRequest,
  IFF_ALLMULTI,
  IFF_MULTICAST,
  IFF_NOARP,
  IFF_PROMISC,
  IFF_UP,
  type Link,
  linkSettingRequest,
  setLinkRequest,
} from '../../src/netlink/rtnl/link.ts';
import {
  decodeRoute,
  listRouteMessages,
  type Route,
  RT_TABLE_LOCAL,
  RTPROT_KERNEL,
  RTPROT_RA,
  restoreRoutes,
  routeThrough,
} from '../../src/netlink/rtnl/route.ts';
import { NetlinkError, type NetlinkSocket, tolerating } from '../../src/netlink/socket.ts';
import { problemsOf } from '../../src/plugin/steps.ts';
import { Errno } from '../../src/sys/errno.ts';
import type { DeviceRecord } from './record.ts';

/** What a container can change of a device's flags, apart from its state. */
const CHOSEN_FLAGS = IFF_NOARP | IFF_MULTICAST | IFF_PROMISC | IFF_ALLMULTI;

/** What a device loses when it is moved to another namespace, or a container can change. */
type DeviceState = Omit<
  DeviceRecord,
  'id' | 'boot' | 'network' | 'containerId' | 'ifname' | 'netns' | 'rules'
>;

/** Reads everything that the record holds of a device. Same as: `ip -d link show`, `ip addr show`, `ip route show table all` */
export function capture(
  host: NetlinkSocket,
  link: Link,
  identity: Pick<DeviceRecord, 'parent' | 'node'>,
): DeviceState {
  const { alias, permAddress, propList, txqlen } = link.attrs;
  const addresses = listAddressMessages(host, link.index)
    .map(message => ({ message, address: decodeAddress(message) }))
    .filter(({ address }) => address.index === link.index && isLasting(address));
  const own = new Set(addresses.map(({ address }) => renderIp(address.cidr.ip)));
  return {
    name: link.name,
    ifindex: link.index,
    ...identity,
    kind: link.kind,
    mac: link.mac,
    permanentMac: permAddress,
    altNames: [...(propList ?? [])],
    alias,
    flags: link.flags,
    mtu: link.mtu,
    txqlen,
    settings: readSettings(link),
    xdp: programOf(link),
    addresses: addresses.map(({ message, address }) => keep(renderCidr(address.cidr), message)),
    routes: listRouteMessages(host)
      .map(message => ({ message, route: decodeRoute(message) }))
      .filter(({ route }) => isLost(route, link.index, own))
      .map(({ message, route }) => keep(describeRoute(route), message)),
  };
}

/** Addresses of a record, for a device that has this index now. */
export function addressesOf(
  { addresses, routes }: Pick<DeviceRecord, 'addresses' | 'routes'>,
  index: number,
): Address[] {
  const sources = new Set(
    routes.flatMap(({ message }) => renderSource(decodeRoute(Buffer.from(message, 'base64')))),
  );
  const restored = addresses.map(({ message }) => {
    const address = decodeAddress(Buffer.from(message, 'base64'));
    // A route cannot name an address as its source while the kernel still looks for a duplicate.
    const isSource = address.cidr.ip.family === 6 && sources.has(renderIp(address.cidr.ip));
    return { ...address, index, flags: address.flags | (isSource ? IFA_F_NODAD : 0) };
  });
  const isIpv6 = ({ cidr }: Address) => cidr.ip.family === 6;
  // The kernel puts a new address of IPv6 before the others, and a new one of IPv4 after them.
  return [...restored.filter(one => !isIpv6(one)), ...restored.filter(isIpv6).reverse()];
}

/** Routes of a record, for a device that has this index now. */
export function routesOf(
  { routes, ifindex }: Pick<DeviceRecord, 'routes' | 'ifindex'>,
  index: number,
): Route[] {
  return routes.map(({ message }) => {
    const route = decodeRoute(Buffer.from(message, 'base64'));
    const here = (oif: number): number => (oif === ifindex ? index : oif);
    // One that leads through another device alone has an address of this one as its source.
    const own = route.dst.ip.family === 6 ? routeThrough(route, ifindex, index) : undefined;
    return (
      own ?? {
        ...route,
        oif: here(route.oif),
        ways: route.ways?.map(way => ({ ...way, oif: here(way.oif) })),
      }
    );
  });
}

/**
 * Gives a device on the host what the record has, apart from its name. Every part is attempted.
 * @returns what could not be restored, human-readable
 */
export function restore(host: NetlinkSocket, link: Link, record: DeviceRecord): string[] {
  const { mac, mtu, txqlen } = record;
  const up = Boolean(record.flags & IFF_UP);
  const flags = record.flags & CHOSEN_FLAGS;
  const missing = record.altNames.filter(name => !link.attrs.propList?.includes(name));
  const requests = [
    setLinkRequest(link.index, { alias: record.alias ?? '' }),
    ...programRequests(link, record.xdp),
    ...(flags === (link.flags & CHOSEN_FLAGS)
      ? []
      : [setLinkRequest(link.index, { flags: { of: CHOSEN_FLAGS, value: flags } })]),
    ...(mac !== undefined && mac !== link.mac ? [setLinkRequest(link.index, { mac })] : []),
    ...(mtu === link.mtu ? [] : [setLinkRequest(link.index, { mtu })]),
    ...(txqlen === undefined || txqlen === link.attrs.txqlen ? [] : [setLinkRequest(link.index, { txqlen })]),
    ...missing.map(name => addAltNameRequest(link.index, name)),
    ...settingRequests(link, record.settings),
    ...(up ? [setLinkRequest(link.index, { up })] : []),
  ];
  const outcomes = host.attemptAll(requests);
  return [
    ...outcomes.flatMap(outcome => (outcome instanceof NetlinkError ? [outcome.message] : [])),
    ...addressesOf(record, link.index).flatMap(address =>
      problemsOf(() => tolerating([Errno.EEXIST], () => restoreAddress(host, address))),
    ),
    // A device that is down has no routes.
    ...(up ? restoreRoutes(host, routesOf(record, link.index)).map(({ message }) => message) : []),
  ];
}

function keep(what: string, message: Uint8Array): DeviceRecord['routes'][number] {
  return { what, message: Buffer.from(message).toString('base64') };
}

/** Leased and advertised addresses come from a program or a router, which gives them again; so does the kernel its own. */
function isLasting({ cidr, flags, scope, protocol }: Address): boolean {
  const isLinkLocal = cidr.ip.family === 6 && scope === RT_SCOPE_LINK;
  return Boolean(flags & IFA_F_PERMANENT) && !(isLinkLocal && protocol === IFAPROT_KERNEL_LL);
}

/** Whether the kernel deletes the route with the device, and no program or router makes it again. */
function isLost(route: Route, index: number, own: ReadonlySet<string>): boolean {
  if (route.table === RT_TABLE_LOCAL || route.protocol === RTPROT_KERNEL || route.protocol === RTPROT_RA)
    return false;
  return routeThrough(route, index) !== undefined || renderSource(route).some(source => own.has(source));
}

function renderSource({ source }: Route): string[] {
  return source ? [renderIp(source)] : [];
}

function describeRoute({ dst, gateway, table }: Route): string {
  return `${renderCidr(dst)}${gateway ? ` via ${renderIp(gateway)}` : ''} table ${table}`;
}

/**
 * linux/if_link.h: IFLA_LINKMODE, IFLA_PROTO_DOWN, IFLA_GSO_MAX_SEGS and _SIZE, IFLA_GRO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE,
 * IFLA_GRO_IPV4_MAX_SIZE
 */
const PLAIN = [17, 39, 40, 41, 58, 63, 64];
const IFLA_GROUP = 27;
const IFLA_AF_SPEC = 26;
const IFLA_XDP = 43;

/** IFLA_AF_SPEC: how IPv6 makes addresses is what a program sets, of all that the kernel tells there. */
const afSpec = attrs('families', { inet6: [10, attrs('IPv6', { addrGenMode: [8, u8] })] });

/** IFLA_XDP */
const xdp = attrs('XDP', { fd: [1, s32], flags: [3, u32], program: [4, u32] });
/** linux/if_link.h: where a program can be: XDP_FLAGS_SKB_MODE, _DRV_MODE, _HW_MODE */
const XDP_PLACES = [2, 4, 8];

function readSettings({ attrs: own }: Link): Record<string, string> {
  const raw = (type: number) => own.unknown?.find(one => one.type === type)?.bytes;
  const families = raw(IFLA_AF_SPEC);
  const { addrGenMode } = (families && afSpec.decode(families, {}).inet6) ?? {};
  const found: (readonly [number, Uint8Array | undefined])[] = [
    ...PLAIN.map(type => [type, raw(type)] as const),
    [IFLA_GROUP, own.group === undefined ? undefined : encode(u32, own.group)],
    [IFLA_AF_SPEC, addrGenMode === undefined ? undefined : encode(afSpec, { inet6: { addrGenMode } })],
  ];
  return Object.fromEntries(
    found.flatMap(([type, bytes]) => (bytes ? [[type, Buffer.from(bytes).toString('base64')]] : [])),
  );
}

function settingRequests(link: Link, settings: Readonly<Record<string, string>>): Request[] {
  const now = readSettings(link);
  return Object.entries(settings).flatMap(([type, bytes]) => {
    if (now[type] === bytes) return [];
    return linkSettingRequest(link.index, { type: Number(type), bytes: Buffer.from(bytes, 'base64') });
  });
}

/** The program that runs for each packet; 0 for none. */
function programOf({ attrs: own }: Link): number {
  const bytes = own.unknown?.find(one => one.type === IFLA_XDP)?.bytes;
  return (bytes && xdp.decode(bytes, {}).program) || 0;
}

/** The requests that remove a container's program, which would see, change and redirect the host's packets. */
function programRequests(link: Link, own: number): Request[] {
  if (programOf(link) === own) return [];
  return XDP_PLACES.map(flags =>
    linkSettingRequest(link.index, { type: IFLA_XDP, bytes: encode(xdp, { fd: -1, flags }) }),
  );
}

function encode<T>(field: Field<T>, value: T): Uint8Array {
  const writer = new Writer();
  field.encode(writer, value, {});
  return writer.take();
}
