// How does the host reach a container, although the kernel keeps a master's own packets from the macvlans on it?
import { hostsOf, type PlannedRoute } from '../../src/attach/addressing.ts';
import { addRoutes, checkRoutes } from '../../src/attach/container.ts';
import { stateOf } from '../../src/attach/device.ts';
import { derivedMac } from '../../src/attach/mac-and-mtu.ts';
import { attachmentOf, noteOf, refuserFor } from '../../src/attach/owner.ts';
import { explainRefusal } from '../../src/attach/upper.ts';
import { runDir } from '../../src/cni/directories.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { findUse } from '../../src/ipam/holders.ts';
import { parseMac } from '../../src/net/interface.ts';
import { cidrContains, hostCidr, IP_BITS, type Ip, linkLocalOf, renderIp, sameIp } from '../../src/net/ip.ts';
import {
  addEntries,
  deletePlaces,
  type Element,
  type Entry,
  findElements,
  listElements,
} from '../../src/netlink/nft/element.ts';
import { commitAfterReading, type Table, tryOut } from '../../src/netlink/nft/message.ts';
import {
  changeOwned,
  findOwnedProblems,
  listOwned,
  placeOf,
  restoreSkeleton,
  type Skeleton,
  skeletonChanges,
} from '../../src/netlink/nft/skeleton.ts';
import { NF_IP_PRI_RAW, type NftSet } from '../../src/netlink/nft/table.ts';
import {
  addAddressRequest,
  listAddresses,
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
} from '../../src/netlink/rtnl/addr.ts';
import { createUpper } from '../../src/netlink/rtnl/kinds.ts';
import {
  findLink,
  getLink,
  type Link,
  listLinks,
  MACVLAN_MODES,
  removeLink,
  setLinkRequest,
} from '../../src/netlink/rtnl/link.ts';
import { findNeighbour, removeNeighbour } from '../../src/netlink/rtnl/neighbour.ts';
import { listRoutes, type Route, removeRoute } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, isStaleNote, type KeptAttachments } from '../../src/plugin/define.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { confirm, confirmAll } from '../../src/plugin/steps.ts';
import { ownNetns } from '../../src/sys/netns.ts';
import { ensureSysctl, findSysctl, trySysctl } from '../../src/sys/sysctl.ts';

/**
 * Lets the host reach the addresses of a container: a macvlan of its own on the same master, and a route to each address. What exists
 * is kept.
 * @param inside the container's interface
 * @throws CniError 101 when another attachment that is alive has one of the addresses, 11 when another call takes too long
 */
export function openHostAccess(call: Call, inside: Link, ips: readonly Ip[]): void {
  const { host, hostNft } = call;
  withHostAccessLock(call, () => {
    const device = ensureDevice(host, getLink(host, inside.peer));
    const wanted = entriesFor(call, device.name, inside, ips);
    changeOwned(hostNft, [SKELETON], () => {
      const found = findElements(hostNft, wanted.map(placeOf));
      const missing = wanted.filter(({ element }, i) => found[i]?.comment !== element.comment);
      const rivals = wanted.flatMap((entry, i) => rivalOf(entry, found[i]) ?? []);
      refuserFor(call)(rivals);
      return [...deletePlaces(rivals.map(({ place }) => place)), ...addEntries(missing)];
    });
    addRoutes(host, device, routesTo(call, device, ips));
    // The container has announced its addresses before the device let that in, so the host may know an earlier container with them.
    for (const ip of ips) {
      if (findNeighbour(host, device.index, ip)?.mac !== inside.mac)
        removeNeighbour(host, { index: device.index, ip });
    }
  });
}

/** The same, and writes the rules again if others have changed them. */
export function restoreHostAccess(call: Call, inside: Link, ips: readonly Ip[]): void {
  restoreSkeleton(call.hostNft, SKELETON);
  openHostAccess(call, inside, ips);
}

/** @throws Error naming the first part of the host's access that is missing */
export function checkHostAccess(call: Call, inside: Link, ips: readonly Ip[]): void {
  const { host, hostNft } = call;
  const name = deviceNameOf({ index: inside.peer });
  const device = findDevice(host, { index: inside.peer });
  confirm(`the host's device "${name}"`, 'up', device ? stateOf(device) : 'missing');
  if (device === undefined) return;
  const wanted = entriesFor(call, name, inside, ips);
  confirmAll("the host's access", findOwnedProblems(hostNft, [SKELETON], wanted));
  checkRoutes(host, device, routesTo(call, device, ips));
}

/** Checks that the packet filter can restrict the host's device. @throws NetlinkError */
export function probeHostAccess({ hostNft }: Pick<Call, 'hostNft'>): void {
  tryOut(hostNft, skeletonChanges(SKELETON));
}

/** The element that restricts the device, and those by which the attachment uses it. */
function entriesFor(call: Call, device: string, inside: Link, ips: readonly Ip[]): Entry[] {
  const comment = noteOf(attachmentOf(call));
  const linkLocal = ips.some(({ family }) => family === 6) ? linkLocalsOf(call, inside) : [];
  return [
    { set: DEVICES, element: { key: [device], comment: ALIAS } },
    ...[...ips, ...linkLocal].map(ip => ({ set: PODS[ip.family], element: { key: [device, ip], comment } })),
  ];
}

/** What the pod sends from to the link-local address of the host. Without a carrier it has none yet. */
function linkLocalsOf({ container }: Call, { index, mac = '' }: Link): Ip[] {
  const present = hostsOf(listAddresses(container, index).filter(({ scope }) => scope === RT_SCOPE_LINK));
  const own = present.filter(({ family }) => family === 6);
  return own.length ? own : [linkLocalOf(parseMac(mac))];
}

function rivalOf(entry: Entry, found: Element | undefined) {
  const owner = found?.comment;
  if (found === undefined || owner === entry.element.comment) return undefined;
  const ip = entry.element.key.find(value => typeof value === 'object') as Ip;
  return { ip, owner, place: placeOf(entry) };
}

/**
 * A route to each address. Without an address of its own in IPv4, the device would lend any of the host's: pods answer the one on
 * the master's link. In IPv6, pods find the device's own address only.
 */
function routesTo({ host }: Call, device: Link, ips: readonly Ip[]): PlannedRoute[] {
  const own = listAddresses(host, device.peer).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  return ips.map(ip => {
    const dst = hostCidr(ip);
    if (ip.family === 6) return { dst, source: linkLocalOf(parseMac(device.mac ?? '')) };
    const candidates = own.filter(({ cidr }) => cidr.ip.family === 4).map(({ cidr }) => cidr);
    const source = candidates.find(cidr => cidrContains(cidr, ip)) ?? candidates[0];
    return { dst, source: source?.ip, scope: RT_SCOPE_LINK };
  });
}

// Routes carry no name, so they follow from the elements: a route to an address that no element has belongs to no attachment. A
// flush of the packet filter takes the elements of all, so such a route is kept as long as an interface has its address.

/** Whether the host has access to the call's attachment. */
export function isOpenTo(call: Call): boolean {
  const own = noteOf(attachmentOf(call));
  return listOwned(call.hostNft, OWNED_SETS, note => note === own).length > 0;
}

/**
 * Ends the host's access to the call's attachment, whose device is gone.
 * @param kept for GC: ends that to the network's attachments that are not kept
 */
export function closeHostAccess(call: Call, kept?: KeptAttachments): void {
  const { host, hostNft } = call;
  const own = noteOf(attachmentOf(call));
  const isGone = (note: string) => (kept ? isStaleNote(note, call.network, kept) : note === own);
  const close = (): void => {
    const noted = listOwned(hostNft, OWNED_SETS, () => true);
    const isOfGone = ({ element: { comment = '' } }: Entry): boolean => isGone(comment);
    const gone = keysOf(noted.filter(isOfGone));
    const used = keysOf(noted.filter(entry => !isOfGone(entry)));
    const unused = listDevices(host).filter(device => {
      const unnamed = listHostRoutes(host, device).filter(
        route => !used.has(keyOf(device.name, route.dst.ip)),
      );
      const left = withoutUnheld(unnamed, route => gone.has(keyOf(device.name, route.dst.ip)));
      for (const route of unnamed) if (!left.includes(route)) removeRoute(host, route);
      const isFree = left.length === 0 && ![...used].some(key => key.startsWith(`${device.name} `));
      return isFree && !hasAddress(host, device);
    });
    for (const { index } of unused) removeLink(host, index);
    const present = new Set(listDevices(host).map(({ name }) => name));
    commitAfterReading(hostNft, () => [
      ...deletePlaces(listOwned(hostNft, OWNED_SETS, isGone).map(placeOf)),
      ...deletePlaces(
        listElements(hostNft, DEVICES)
          .filter(({ key: [name] }) => !present.has(String(name)))
          .map(({ key }) => ({ set: DEVICES, key })),
      ),
    ]);
  };
  withHostAccessLock(call, close, { closing: true });
}

/** The plugin gives the device none, so any that is not the kernel's own is an operator's. */
function hasAddress(host: NetlinkSocket, { index }: Link): boolean {
  return listAddresses(host, index).some(({ scope }) => scope === RT_SCOPE_UNIVERSE);
}

/** Routes to one address each, through a device. */
function listHostRoutes(host: NetlinkSocket, { index }: Link): Route[] {
  return listRoutes(host, { oif: index }).filter(
    ({ oif, dst }) => oif === index && dst.prefix === IP_BITS[dst.ip.family],
  );
}

/** Of the routes that have no element, those whose address an interface of a container has. */
function withoutUnheld(routes: readonly Route[], isOfGone: (route: Route) => boolean): Route[] {
  const doubtful = routes.filter(route => !isOfGone(route));
  if (doubtful.length === 0) return [];
  const holders = findUse()?.holders;
  if (holders === undefined) return doubtful;
  return doubtful.filter(({ dst }) => holders.get(renderIp(dst.ip))?.some(({ isHere }) => !isHere));
}

function keysOf(entries: readonly Entry[]): ReadonlySet<string> {
  return new Set(entries.map(({ element: { key } }) => keyOf(String(key[0]), key[1] as Ip)));
}

function keyOf(device: string, ip: Ip): string {
  return `${device} ${renderIp(ip)}`;
}

const ALIAS = 'catena: host access';
/** With the master's index, a name of at most fifteen characters. */
const PREFIX = 'hmv';

function deviceNameOf(master: Pick<Link, 'index'>): string {
  return `${PREFIX}${master.index}`;
}

function findDevice(host: NetlinkSocket, master: Pick<Link, 'index'>): Link | undefined {
  const link = findLink(host, deviceNameOf(master));
  return link && isOurs(link) && link.peer === master.index ? link : undefined;
}

function listDevices(host: NetlinkSocket): Link[] {
  return listLinks(host).filter(isOurs);
}

export function hasDevices(host: NetlinkSocket): boolean {
  return listDevices(host).length > 0;
}

/**
 * The host's device on a master, up; made unless it exists. Its hardware address is derived from the master's.
 * @throws CniError 7 when the master cannot carry it, or another device has its name
 */
function ensureDevice(host: NetlinkSocket, master: Link): Link {
  const device = findDevice(host, master) ?? make(host, master);
  const own = { ip: linkLocalOf(parseMac(device.mac ?? '')), prefix: 64 };
  const hasIpv6 = setSysctls(device.name);
  const hasOwn = listAddresses(host, device.index).some(({ cidr }) => sameIp(cidr.ip, own.ip));
  host.requestAll([
    // Derived from an address that no other device of the link has, so it need not be probed for.
    ...(hasIpv6 && !hasOwn ? [addAddressRequest(device.index, own, { nodad: true })] : []),
    setLinkRequest(device.index, { up: true }),
  ]);
  return getLink(host, device.index);
}

function isOurs({ kind, attrs }: Link): boolean {
  return kind === 'macvlan' && attrs.alias === ALIAS;
}

function make(host: NetlinkSocket, master: Link): Link {
  const name = deviceNameOf(master);
  const mac = derivedMac({ network: '', containerId: ALIAS, ifname: name }, master.mac ?? '');
  const other = findLink(host, name);
  // A process that was killed may have made it without the alias.
  const isOfKilled = other?.kind === 'macvlan' && !other.attrs.alias && other.mac === mac;
  if (other && !isOfKilled) {
    throw invalidConfig(
      `Cannot give the host access to its containers: "${name}" is another device of kind "${other.kind}"; rename it`,
    );
  }
  try {
    const data = { mode: MACVLAN_MODES.bridge };
    if (!other) createUpper(host, { name, kind: 'macvlan', data, lower: master.index, mac });
  } catch (thrown) {
    throw explainRefusal(thrown, { lower: master, socket: host, kind: 'macvlan' });
  }
  try {
    const { index } = getLink(host, name);
    host.requestAll([setLinkRequest(index, { alias: ALIAS })]);
    return getLink(host, index);
  } catch (thrown) {
    // Without its alias it is not found again.
    removeLink(host, name);
    throw thrown;
  }
}

/**
 * Keeps the device from speaking for the host on the master's link: only pods learn its hardware address, and routers do not
 * configure it. @returns whether the kernel has IPv6
 */
function setSysctls(name: string): boolean {
  // Answers only for addresses that this device leads back to: those of the pods.
  ensureSysctl(`net/ipv4/conf/${name}/arp_filter`, '1');
  const conf = `net/ipv6/conf/${name}`;
  if (findSysctl(`${conf}/disable_ipv6`) === undefined) return false;
  for (const [key, value] of [
    ['accept_ra', '0'],
    ['autoconf', '0'],
    // The kernel adds no address of its own: it would have to be probed for.
    ['addr_gen_mode', '1'],
  ] as const) {
    trySysctl(`${conf}/${key}`, value);
  }
  ensureSysctl(`${conf}/disable_ipv6`, '0');
  return true;
}

// The device has the link of the master, so it would be a second way into the host, past rules that name the master. It is open to
// the addresses of the pods that asked for it. The elements that say so are also the count of the device's users.

/** The table of our own that holds everything below. */
const TABLE: Table = { family: 'inet', name: 'catena_host_access' };

/**
 * Devices that {@link PODS} restricts; an element belongs to the device, not to an attachment. With the name "devices", nft could not load
 * its own listing: it is a word of its language.
 */
const DEVICES: NftSet = { table: TABLE, name: 'guarded', key: ['ifname'] };

/** Device of the host, and address of a pod behind it. */
const PODS: Readonly<Record<4 | 6, NftSet>> = {
  4: { table: TABLE, name: 'pods4', key: ['ifname', 'ipv4_addr'] },
  6: { table: TABLE, name: 'pods6', key: ['ifname', 'ipv6_addr'] },
};

/** The sets whose elements belong to one attachment each. */
const OWNED_SETS: readonly NftSet[] = [PODS[4], PODS[6]];

const SKELETON: Skeleton = {
  table: TABLE,
  comment: 'catena: what the macvlans of the host accept',
  version: 2,
  sets: [DEVICES, ...OWNED_SETS],
  chains: [
    {
      name: 'prerouting',
      // Before connections are tracked.
      base: { type: 'filter', hook: 'prerouting', priority: NF_IP_PRI_RAW },
      rules: [
        'iifname @guarded iifname . ip saddr != @pods4 drop',
        // Neighbour solicitations and advertisements.
        'iifname @guarded ip6 saddr fe80::/10 icmpv6 type 135-136 accept',
        'iifname @guarded iifname . ip6 saddr != @pods6 drop',
      ],
    },
  ],
};

/** The file is missing and cannot be made: the file system is full or read-only. */
const NO_ROOM = ['ENOSPC', 'EDQUOT', 'EROFS', 'ENOENT'];

/**
 * Runs a step during which no other process of ours makes or removes a macvlan of the host, or counts its users.
 * @param options `closing`: if there is no room for the lock's file, no other process can be in such a step, and DEL goes on without
 * @throws CniError as {@link withPluginLock}
 */
function withHostAccessLock<T>(
  { environment }: Pick<Call, 'environment'>,
  step: () => T,
  { closing = false } = {},
): T {
  try {
    return withPluginLock(`${runDir(environment)}/host-access-${ownNetns().ino}.lock`, step);
  } catch (thrown) {
    const { code = '' } = ((thrown as Error).cause ?? {}) as NodeJS.ErrnoException;
    if (closing && NO_ROOM.includes(code)) return step();
    throw thrown;
  }
}
