// How does a device in the container get what its IPAM plugin assigns, and is it still as ADD left it?
//
// The device exists before the IPAM plugin is called, because some of them talk through it: dhcp sends its requests from there.

import { interimName, renderOwner } from '../cni/attachment.ts';
import { attempt, CniError, ErrorCode, invalidConfig } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { type Result, type ResultInterface, resultIp, spreadGateways } from '../cni/result.ts';
import type { PluginConfig } from '../cni/schemas.ts';
import { type Cidr, parseCidr, parseIp, renderCidr, renderIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import {
  ALIAS_MAX_BYTES,
  findHostEnd,
  findLink,
  IFF_NOARP,
  IFF_UP,
  type Link,
  linkQuestion,
  listLinks,
  setLink,
} from '../netlink/rtnl/link.ts';
import { findNeighbour, type Neighbour, removeNeighbour } from '../netlink/rtnl/neighbour.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call, Done } from '../plugin/define.ts';
import { deleteInContainer } from '../plugin/delete-devices.ts';
import { ContainerNetns } from '../plugin/invocation.ts';
import { isReported } from '../plugin/netns-owner.ts';
import { confirm, mend, requireResult, tryAll } from '../plugin/steps.ts';
import { ownNetns, sameNetns } from '../sys/netns.ts';
import {
  type ContainerAddressing,
  cidrsOf,
  dnsOf,
  hostEndOf,
  hostsOf,
  planRoute,
  prepareIpam,
  refuseHostsOwn,
  removeAndRelease,
} from './addressing.ts';
import { probeAddresses } from './conflict.ts';
import {
  awaitDuplicateDetection,
  checkRoutes,
  configureContainer,
  describeInterface,
  ignoreNeighbours,
  refuseDuplicate,
  repairAddresses,
  repairReportedRoutes,
  reportedIn,
} from './container.ts';
import { AUTO_MTU } from './mac-and-mtu.ts';
import { attachmentOf } from './owner.ts';
import { awaitTraffic } from './ready.ts';

/** @throws Error naming the first address that is missing from the interface, or that another host has */
export function checkAddresses(socket: NetlinkSocket, link: Link, wanted: readonly Cidr[]): void {
  const present = new Map(listAddresses(socket, link.index).map(one => [renderCidr(one.cidr), one]));
  for (const text of wanted.map(renderCidr)) {
    const found = present.get(text);
    if (found === undefined) confirm(`addresses of "${link.name}"`, text, [...present.keys()]);
    else refuseDuplicate(link, [found]);
  }
}

/** @throws Error when the hardware address differs from the reported one; no reported address is accepted */
export function checkMac(name: string, reported: ResultInterface | undefined, link: Link): void {
  if (reported?.mac) confirm(`hardware address of ${name}`, reported.mac.toLowerCase(), link.mac);
}

/** The administrative state, `up` or `down`. */
export function stateOf(link: Link): string {
  return link.flags & IFF_UP ? 'up' : 'down';
}

/** @throws Error when a device is down, or does not ask for hardware addresses any longer, so that no packet leaves */
export function checkUp(name: string, link: Link): void {
  confirm(`state of ${name}`, 'up', isMute(link) ? `${stateOf(link)}, with "arp off"` : stateOf(link));
}

/** Kinds that always ask; others may lack it by nature, as dummies, or by their lower device. */
const ASKING = ['veth', 'bridge', 'macvlan'];

function isMute({ kind, flags }: Link): boolean {
  return (flags & IFF_NOARP) !== 0 && ASKING.includes(kind);
}

interface Addressed {
  readonly link: Link;
  /** The answer of the IPAM plugin; undefined on layer 2 only. */
  readonly ipam: Result | undefined;
  readonly addressing: ContainerAddressing | undefined;
}

interface AddressOptions {
  /** Addresses and routes that an earlier plugin of the chain obtained, in place of the IPAM plugin's. */
  readonly given?: Result | undefined;
  /**
   * Others share the link, so IPv6 duplicate address detection stays enabled and is awaited. False for a device without
   * neighbours, such as a dummy.
   */
  readonly shared: boolean;
  /** False for a device that has no carrier before something is attached to it later. */
  readonly carrier?: boolean;
  /** Ask the link for the IPv4 addresses before they are used (RFC 5227), which takes up to 200 ms. */
  readonly probe?: boolean;
}

/**
 * Makes a device, asks the IPAM plugin, if there is one, gives the device its addresses and routes, and brings it up. Waits until
 * packets flow and, on a shared link, until IPv6 addresses are known to be unique. When ADD fails, the addresses are released.
 * @param make makes the device, and registers how it is deleted
 * @throws CniError 7 when the IPAM plugin gave no address, CniError 11 when another host has one
 */
export async function addDevice(
  call: Call<PluginConfig>,
  make: () => Pick<Link, 'index' | 'name'>,
  { given, shared, carrier = true, probe = false }: AddressOptions,
): Promise<Addressed> {
  const ask = prepareIpam(call);
  const link = make();
  ignoreNeighbours(call, link.name);
  const ipam = given ?? (await ask());
  const addressing = ipam && planAddresses(ipam, call.conf.ipam?.type);
  let current = lookAgain(call, link);
  // Probes of a device do not reach the node, which is below it.
  if (addressing) refuseHostsOwn(call, hostEndOf(current), addressing.ips);
  const ips = hostsOf(addressing?.ips ?? []);
  if (probe && ips.some(({ family }) => family === 4)) {
    const stages = [{ socket: call.container, link: current, ips: [] }];
    await probeAddresses(call, current, stages, addressing?.ips ?? []);
    current = lookAgain(call, link);
  }
  if (addressing) configureContainer(call, current, addressing, shared);
  else setLink(call.container, current.index, { up: true });
  if (carrier)
    await awaitTraffic(call.log, [{ socket: call.container, link: current, ips: shared ? [] : ips }]);
  if (shared && ips.some(({ family }) => family === 6))
    await awaitDuplicateDetection(call.container, current);
  return { link: current, ipam, addressing };
}

/** The IPAM plugin may have taken seconds, and may have brought the device up. */
function lookAgain(call: Call, { index, name }: Pick<Link, 'index' | 'name'>): Link {
  const current = call.container.ask(linkQuestion(index));
  if (current?.name === name) return current;
  throw new CniError(
    ErrorCode.internal,
    `Cannot give "${name}" its addresses: it was ${current ? 'renamed' : 'deleted'} while the IPAM plugin worked; call ADD again`,
  );
}

/** What CHECK expects of a device, besides what the result says. */
interface DeviceExpectation {
  /** Kind of device, as in `ip -d link`. */
  readonly kind: string;
  /** Configured MTU in bytes; 0 or undefined when the kernel chose it. */
  readonly mtu?: number | undefined;
  /** Whether ADD asked the link for the IPv4 addresses. */
  readonly probes?: boolean | undefined;
  /** Checks what is below the device, and returns its MTU. */
  readonly checkLower?: ((link: Link) => number) | undefined;
}

/** The result of the ADD. @throws CniError 7 when the request has none */
export function requirePrevResult(call: Call): Result {
  return requireResult(call, 'Cannot check attachment: the request has no "prevResult"');
}

/** A device of the container, as the result of its ADD has it, and as it is. */
interface FoundDevice {
  /** For errors. */
  readonly name: string;
  readonly reported: ResultInterface | undefined;
  readonly link: Link;
}

/** @throws Error if the result does not have it, or it is gone */
export function findDevice({ env, container }: Call, prevResult: Result): FoundDevice {
  const name = `interface "${env.ifname}"`;
  const reported = reportedIn(prevResult, { env });
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  return { name, reported, link };
}

/**
 * Compares what ADD reported of an interface, and that it is up. A later plugin such as tuning may have changed address and MTU, and then
 * says so in the result.
 * @param isUp whether ADD brought it up; otherwise that is the container's business
 * @param mtu in place of the reported one
 * @throws Error naming the first difference
 */
export function checkReported({ name, reported, link }: FoundDevice, isUp = true, mtu = reported?.mtu): void {
  checkMac(name, reported, link);
  if (mtu !== undefined) confirm(`MTU of ${name}`, mtu, link.mtu);
  if (isUp) checkUp(name, link);
}

/** Compares addresses and routes with those of the result of ADD. @throws Error naming the first difference */
export function checkLayer3({ container, env }: Call, link: Link, prevResult: Result): void {
  const { ips, routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  if (ips.length === 0) return;
  checkAddresses(container, link, cidrsOf(ips));
  checkRoutes(container, link, routes);
}

/**
 * Compares kind, hardware address, MTU, state, addresses and routes of every table with the result of ADD.
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkDevice(call: Call, expected: DeviceExpectation): Link {
  const prevResult = requirePrevResult(call);
  const found = findDevice(call, prevResult);
  const { name, reported, link } = found;
  confirm(`kind of ${name}`, expected.kind, link.kind);
  checkReported(found, true, mtuOf(link, reported, expected));
  checkLayer3(call, link, prevResult);
  return link;
}

/** What ADD reported or the configuration says; without the latter, a device may have followed its lower device since. */
function mtuOf(link: Link, reported: ResultInterface | undefined, expected: DeviceExpectation) {
  const lower = expected.checkLower?.(link);
  const wanted = reported?.mtu ?? (expected.mtu || undefined);
  if (wanted === undefined || lower === undefined || expected.mtu) return wanted;
  return lower === link.mtu ? lower : Math.min(wanted, lower);
}

/**
 * The container's end of a veth pair, compared with the result of ADD.
 * @param isUp whether ADD brought it up; otherwise that is the container's business
 * @throws Error naming the first difference
 */
export function checkContainerEnd(call: Call, prevResult: Result, isUp = true): Link {
  const found = findDevice(call, prevResult);
  confirm(`kind of ${found.name}`, 'veth', found.link.kind);
  checkReported(found, isUp);
  return found.link;
}

/**
 * The host's end, in the same way.
 * @param mtu that the configuration gives the pair; 0 if it gives none
 * @throws Error naming the first difference
 */
export function checkHostEnd(
  call: Call,
  prevResult: Result,
  container: Link,
  mtu: number | typeof AUTO_MTU,
): Link {
  const name = `host end of "${container.name}"`;
  const link = findHostEnd(call, container);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  const outside = prevResult.interfaces?.filter(({ sandbox }) => !sandbox) ?? [];
  // A bridge, which is reported first, may have the address of its port.
  const reported =
    outside.find(one => one.name === link.name) ??
    outside.findLast(({ mac }) => mac?.toLowerCase() === link.mac);
  confirm(`name of ${name}`, reported?.name, link.name);
  checkMac(name, reported, link);
  // An uplink may have got another MTU since ADD.
  if (mtu && mtu !== AUTO_MTU) confirm(`MTU of ${name}`, mtu, link.mtu);
  checkUp(name, link);
  return link;
}

/** Gives the host end the hardware address that the result reports. @returns it as it is then */
export function repairHostMac({ host, prevResult }: Call, link: Link): Link {
  const reported = prevResult?.interfaces?.find(one => one.name === link.name && !one.sandbox);
  const mac = reported?.mac?.toLowerCase() || link.mac;
  if (mac !== link.mac) setLink(host, link.index, { mac });
  return { ...link, mac };
}

/** @throws Error naming a permanent neighbour entry of a device with another hardware address than that of the one that has the addresses */
export function checkNeighbours(
  socket: NetlinkSocket,
  device: Link,
  owner: Link,
  addresses: readonly Cidr[],
): void {
  const [wrong] = findWrong(socket, device, owner, addresses);
  if (wrong === undefined) return;
  throw new Error(
    `Cannot confirm neighbour ${renderIp(wrong.ip)} of "${device.name}": ` +
      `a permanent entry says ${wrong.mac}, but "${owner.name}" has ${owner.mac}`,
  );
}

/** Removes them; the kernel then asks who has the address. */
export function removeWrongNeighbours(
  socket: NetlinkSocket,
  device: Link,
  owner: Link,
  addresses: readonly Cidr[],
): void {
  for (const wrong of findWrong(socket, device, owner, addresses)) removeNeighbour(socket, wrong);
}

function findWrong(
  socket: NetlinkSocket,
  { index }: Link,
  owner: Link,
  addresses: readonly Cidr[],
): Neighbour[] {
  return addresses.flatMap(({ ip }) => {
    const { mac, isPermanent } = findNeighbour(socket, index, ip) ?? {};
    return isPermanent && mac !== owner.mac ? [{ index, ip, mac }] : [];
  });
}

/** Brings a device up, unless it is, and has it ask for hardware addresses. */
export function raise(socket: NetlinkSocket, link: Link): void {
  if (isMute(link)) setLink(socket, link.index, { flags: { of: IFF_NOARP, value: 0 } });
  if (!(link.flags & IFF_UP)) setLink(socket, link.index, { up: true });
}

/**
 * Restores what every device has.
 * @throws Error when the device is missing: only a new ADD can make it
 */
export async function repairDevice(call: Call<PluginConfig>, expected: DeviceExpectation): Promise<Link> {
  const { kind } = expected;
  const link = findLink(call.container, call.env.ifname);
  if (call.prevResult === undefined || link?.kind !== kind) {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate the ${kind} interface "${call.env.ifname}"`,
    );
  }
  await tryAll(repairsOf(call, link, expected));
  return link;
}

/** Steps that give a device its hardware address, state and MTU, and those of its addresses and routes that are missing. */
export function repairsOf(
  call: Call<PluginConfig>,
  link: Link,
  expected: DeviceExpectation = { kind: link.kind },
): (() => Done)[] {
  const { container, env, prevResult } = call;
  if (prevResult === undefined) return [];
  const { ips, routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  const reported = reportedIn(prevResult, call);
  return [
    () =>
      mend(
        () => checkMac(`interface "${link.name}"`, reported, link),
        () => setLink(container, link.index, { mac: reported?.mac?.toLowerCase() }),
      ),
    () => raise(container, link),
    () => {
      const mtu = mtuOf(link, reported, expected);
      if (mtu !== undefined && mtu !== link.mtu) setLink(container, link.index, { mtu });
    },
    () => repairAddresses(call, link, cidrsOf(ips), expected.probes ? probeAddresses : undefined),
    () => repairReportedRoutes(call, link, routes),
  ];
}

/** The part of a result that says how a device is addressed. */
export type Layer3 = Pick<Result, 'ips' | 'routes'>;

/**
 * Derives the addressing of a device, which may be empty. A route without a gateway uses the gateway of its family.
 * @throws CniError 7 for text that is no address
 */
export function planLayer3({ ips: listed = [], routes = [] }: Layer3): ContainerAddressing {
  try {
    const ips = listed.map(({ address, gateway }) => ({
      cidr: parseCidr(address),
      gateway: gateway ? parseIp(gateway) : undefined,
    }));
    return { ips, routes: spreadGateways(routes).map(route => planRoute(route, ips)) };
  } catch (cause) {
    throw invalidConfig(`Cannot use addresses: ${(cause as Error).message}`, { cause });
  }
}

/**
 * The same from the IPAM plugin's result, which must hold an address.
 * @param type of the IPAM plugin, for the error
 * @throws CniError 7 when there is no address, or text that is not one
 */
export function planAddresses(ipam: Result, type: string | undefined): ContainerAddressing {
  const addressing = planLayer3(ipam);
  if (addressing.ips.length > 0) return addressing;
  throw invalidConfig(
    `Cannot attach container: IPAM plugin "${type}" returned no address; remove "ipam" for a device without addresses`,
  );
}

/**
 * The addressing that an earlier ADD reported for an interface, for CHECK; empty when it has no addresses. What other plugins
 * of the chain obtained for other interfaces is left out.
 */
export function addressesFromResult(
  { interfaces, ips = [], routes = [] }: Result,
  ifname: string,
  netns: string,
): ContainerAddressing {
  const own = interfaces?.findIndex(one => one.name === ifname && one.sandbox === netns);
  const mine = ips.filter(ip => ip.interface === undefined || ip.interface === own);
  return mine.length ? planLayer3({ ips: mine, routes }) : { ips: [], routes: [] };
}

/**
 * Deletes the attachment's devices if the namespace still exists, then releases its addresses: the interface, and further devices of
 * that kind with the attachment as their alias. A device of another kind under the interface's name is not ours, and is kept. A
 * container may have taken name and alias off: then it is the one that ADD reported.
 * @param kinds of devices that the plugin makes
 * @param then what has to wait until they are gone, too
 */
export function removeDevices(
  call: Call<PluginConfig>,
  kinds: string | string[],
  then: () => Done = () => {},
): Promise<void> {
  return removeAndRelease(call, 'del', release => {
    removeOwn(call, [kinds].flat());
    return tryAll([then, release]);
  });
}

function removeOwn(call: Call, kinds: readonly string[]): void {
  if (call.findContainerNetns()) {
    const own = findOwn(call, kinds).map(({ index }) => index);
    if (own.length) deleteInContainer(call, own);
  } else removeMarked(call, kinds);
}

/**
 * Deletes what has our mark in a namespace that counts as another attachment's: the container may have exchanged the names of its
 * interfaces, and the address of one that stays would be given away.
 */
function removeMarked(call: Call, kinds: readonly string[]): void {
  const place = attempt(() => new ContainerNetns(call.env.netns));
  if (place === undefined) return;
  try {
    if (sameNetns(place.netns, ownNetns())) return;
    const isOwn = markOf(call);
    const own = listLinks(place.socket).filter(link => kinds.includes(link.kind) && isOwn(link));
    const indexes = own.map(({ index }) => index);
    if (own.length) deleteInContainer({ container: place.socket, containerNetns: place.netns }, indexes);
  } finally {
    place.release();
  }
}

/** Whether a device is the attachment's. An ADD that was killed may have left one without its alias. */
function markOf(call: Call): (link: Link) => boolean {
  const owner = attachmentOf(call);
  const [own, interim] = [renderOwner(owner, ALIAS_MAX_BYTES), interimName(owner)];
  return ({ name, attrs }) => name === interim || attrs.alias === own;
}

function findOwn(call: Call, kinds: readonly string[]): Link[] {
  const owner = attachmentOf(call);
  const isMarked = markOf(call);
  const links = listLinks(call.container);
  const candidates = links.filter(({ kind }) => kinds.includes(kind));
  const named = candidates.filter(link => isMarked(link) || link.name === owner.ifname);
  const { container, prevResult } = call;
  const hidden = candidates.filter(
    link => !named.includes(link) && isReported({ owner, prevResult, container }, link),
  );
  const found = [...named, ...hidden];
  for (const { name, kind } of links) {
    if (name !== owner.ifname || kinds.includes(kind)) continue;
    call.log.warn(
      `Cannot delete "${name}": it is of kind "${kind}", not the ${kinds.join(' or ')} that this plugin created`,
    );
  }
  // Without our mark, it may be of another container that came to the path after the namespace was examined.
  return found.every(isMarked) || call.findContainerNetns(true) ? found : [];
}

/**
 * The result: interfaces and addresses of the plugins before, then the device, its addresses, and the rest of the IPAM result.
 * @param before the result of the plugin before; undefined for the first of a chain
 */
export function renderDevice(
  call: Call<PluginConfig>,
  { link, ipam, addressing }: Addressed,
  before?: Result,
): Result {
  const interfaces = before?.interfaces ?? [];
  const own = addressing?.ips.map(ip => resultIp(ip, interfaces.length));
  const ips = before?.ips || own ? [...(before?.ips ?? []), ...(own ?? [])] : undefined;
  const routes = [...(before?.routes ?? []), ...(ipam?.routes ?? [])];
  const dns = dnsOf(call.conf, ipam ?? before);
  return {
    ...before,
    ...ipam,
    interfaces: [...interfaces, describeInterface(call, link)],
    ...defined({ ips }),
    ...(routes.length ? { routes } : {}),
    ...defined({ dns }),
  };
}

/**
 * The result of a plugin for one interface: its entry, and all addresses.
 * @param layer3 its addresses and routes, if those of the IPAM plugin are not all
 */
export function renderLone(
  { conf }: Call<PluginConfig>,
  entry: ResultInterface,
  ipam: Result | undefined,
  { ips = [], routes = [] }: Layer3 = ipam ?? {},
): Result {
  return {
    ...ipam,
    interfaces: [entry],
    ...(ips.length ? { ips: ips.map(ip => ({ ...ip, interface: 0 })) } : {}),
    ...(routes.length ? { routes } : {}),
    ...defined({ dns: dnsOf(conf, ipam) }),
  };
}
