// How does a container get a device, and how does it come home, wherever it is?

import { refuseTakenName } from '../../src/attach/container.ts';
import type { Layer3 } from '../../src/attach/device.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { findOwner } from '../../src/cni/attachment.ts';
import { attempt, type CniError, describeError, invalidConfig, tryAgainLater } from '../../src/cni/errors.ts';
import type { ResultRoute } from '../../src/cni/result.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import { parseCidr, renderCidr, renderIp } from '../../src/net/ip.ts';
import { type Address, RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import {
  findLink,
  getLink,
  IFF_LOOPBACK,
  IFF_UP,
  type Link,
  listLinks,
  lowerOf,
  ownIdIn,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import { RESERVED_TABLES, type Route, RT_TABLE_MAIN, routeThrough } from '../../src/netlink/rtnl/route.ts';
import { isBySource, type Rule, removeRule } from '../../src/netlink/rtnl/rule.ts';
import { isNetlinkError, type NetlinkSocket, tolerating } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import { ContainerNetns } from '../../src/plugin/invocation.ts';
import { Errno } from '../../src/sys/errno.ts';
import {
  closeNetns,
  findNetns,
  inNetns,
  type Netns,
  openOwnNetns,
  ownNetns,
  sameNetns,
} from '../../src/sys/netns.ts';
import { findNetnsCookie } from '../../src/sys/netns-identity.ts';
import { listDeviceNodes } from '../../src/sys/sysctl.ts';
import { addressesOf, capture, restore, routesOf } from './capture.ts';
import { findSelector, type HostDeviceConf, type Selector, selectorOf } from './config.ts';
import {
  type DeviceRecord,
  findInContainer,
  findOnHost,
  findRecord,
  type Identity,
  type Inside,
  identify,
  isDeviceOf,
  isHardware,
  isMarked,
  listRecords,
  parentOf,
  type RecordedRule,
  removeRecord,
  withDeviceLock,
  writeRecord,
} from './record.ts';
import { findPciAddress, type Selected, select } from './select.ts';

type Present = Exclude<Selected, { kind: 'absent' }>;

/** A device that was moved, and what it was like before. */
export interface Taken {
  readonly kind: 'interface';
  /** In the container. */
  readonly link: Link;
  /** Index of the host's device below it, or at its other end; 0 if there is none. */
  readonly lower: number;
  readonly record: DeviceRecord;
}

/**
 * Moves the device that the configuration names into the container, where it is down and without addresses. Registers its own
 * undo steps.
 * @returns the device, or the PCI device that has no interface because a program in user space drives it
 * @throws CniError 4 when the container has an interface of that name, 7 when the host has no such device, 11 when another
 * container has it
 */
export function take(call: Call<HostDeviceConf>): Taken | Extract<Selected, { kind: 'userspace' }> {
  const selector = selectorOf(call.conf);
  const found = find(call, selector);
  if (found.kind === 'userspace') return found;
  refuseTakenName(call);
  endEarlier(call);
  const identity = identify(found.link);
  return withDeviceLock(call.environment, identity, () => {
    // Another process may have moved or renamed it since.
    const again = select(call.host, selector);
    if (again.kind !== 'interface' || again.link.index !== found.link.index) throw moved(found.link);
    finishEarlier(call, again.link, identity.node);
    const link = findLink(call.host, again.link.index);
    if (link === undefined) throw moved(found.link);
    if (link.flags & IFF_LOOPBACK) throw unusable(`"${link.name}" is the loopback device of the host`);
    return { kind: 'interface', ...moveWithRecord(call, link, identity) };
  });
}

function moveWithRecord(
  call: Call<HostDeviceConf>,
  link: Link,
  identity: ReturnType<typeof identify>,
): Omit<Taken, 'kind'> {
  const { host, container, containerNetns: netns, env, environment } = call;
  const record: DeviceRecord = {
    id: crypto.randomUUID(),
    boot: bootId(environment),
    ...attachmentOf(call),
    netns: { path: env.netns, cookie: findNetnsCookie(env.netns) },
    ...capture(host, link, identity),
    rules: [],
  };
  call.onFailure(`return device "${link.name}"`, () => giveBack(call, record, { socket: container, netns }));
  writeRecord(environment, record);
  const inside = moveIn(host, container, link, { netns, ifname: env.ifname });
  return { link: inside, lower: lowerOf(link), record };
}

/** Looks the device up; one that came home under another name because its namespace ended gets its own name first. */
function find(call: Call<HostDeviceConf>, selector: Selector): Present {
  const found = select(call.host, selector);
  if (found.kind !== 'absent') return found;
  const records = listRecords(call.environment).filter(record => isMeant(record, selector));
  for (const record of records) finishReturned(call, record);
  const again = select(call.host, selector);
  if (again.kind !== 'absent') return again;
  const holder = records.find(record => findRecord(call.environment, record)?.id === record.id);
  if (holder === undefined) throw unusable(again.why);
  throw tryAgainLater(
    `Cannot attach device "${holder.name}": container "${holder.containerId}" has it as interface "${holder.ifname}" on network "${holder.network}"`,
    { details: 'delete that container first' },
  );
}

export function isMeant(record: DeviceRecord, selector: Selector): boolean {
  if (selector.by === 'name') return [record.name, ...record.altNames].includes(selector.name);
  if (selector.by === 'mac') return record.mac === selector.mac;
  return record.parent !== undefined && record.parent.name === findPciAddress(selector);
}

/** An earlier ADD of this attachment was never deleted: its device comes home first. */
function endEarlier(call: Call<HostDeviceConf>): void {
  const earlier = findRecord(call.environment, attachmentOf(call));
  if (earlier === undefined || tryGiveBack(call, earlier)) return;
  throw tryAgainLater(
    `Cannot attach container "${earlier.containerId}": device "${earlier.name}" of its earlier interface "${earlier.ifname}" has not come back yet from "${earlier.netns.path}"; end what still uses that namespace, and run ADD again`,
  );
}

function unusable(why: string): CniError {
  return invalidConfig(`Cannot attach device: ${why}`);
}

function moved({ name }: Link): CniError {
  return tryAgainLater(
    `Cannot attach device "${name}": another process has just moved or renamed it; run ADD again`,
  );
}

/** The addresses and routes that a device had on the host, for the index that it has in the container. */
export interface OwnNetwork {
  readonly addresses: readonly Address[];
  readonly routes: readonly Route[];
}

/** Reads it from the record; a container has no other device that a route of several next hops could use. */
export function ownNetwork(record: DeviceRecord, index: number): OwnNetwork {
  return {
    addresses: addressesOf(record, index),
    routes: routesOf(record, index).flatMap(route => routeThrough(route, index) ?? []),
  };
}

/** The same as a result: without gateways, because its routes name them. */
export function networkOf({ addresses, routes }: OwnNetwork): Layer3 {
  return {
    ips: addresses
      .filter(({ scope }) => scope === RT_SCOPE_UNIVERSE)
      .map(({ cidr }) => ({ address: renderCidr(cidr) })),
    routes: routes.map(renderRoute),
  };
}

/** The device's own network, then that of IPAM; what both have counts once. */
export function mergeNetworks(own: Layer3 | undefined, ipam: Layer3 | undefined): Layer3 {
  const [first, second] = [own ?? {}, ipam ?? {}];
  const known = new Set((second.ips ?? []).map(({ address }) => address));
  return {
    ips: [...(first.ips ?? []).filter(({ address }) => !known.has(address)), ...(second.ips ?? [])],
    routes: [...(first.routes ?? []), ...(second.routes ?? [])],
  };
}

/** The source rules of the host that lead to tables with routes through the device, apart from the kernel's own tables. */
export function rulesFor(routes: readonly Pick<Route, 'table'>[], rules: readonly Rule[]): RecordedRule[] {
  const own = new Set(routes.map(({ table = RT_TABLE_MAIN }) => table));
  for (const table of RESERVED_TABLES) own.delete(table);
  return rules.flatMap(rule => {
    const { from, table, priority } = rule;
    return from && isBySource(rule) && own.has(table) ? [{ from: renderCidr(from), table, priority }] : [];
  });
}

function renderRoute({ dst, gateway, ways, table, scope, priority, mtu, advmss }: Route): ResultRoute {
  const gw = gateway ?? ways?.[0]?.gateway;
  return {
    dst: renderCidr(dst),
    ...(gw === undefined ? {} : { gw: renderIp(gw) }),
    ...(table && table !== RT_TABLE_MAIN ? { table } : {}),
    ...(scope ? { scope } : {}),
    ...(priority ? { priority } : {}),
    ...(mtu ? { mtu } : {}),
    ...(advmss ? { advmss } : {}),
  };
}

type Returning = Pick<Call, 'host' | 'environment' | 'log'>;

/** After the last process of a namespace has ended, the kernel takes its devices apart in the background. */
const CLEANUP_MS = 5_000;
const LOOK_AGAIN_MS = 50;

/**
 * Returns the device of a record and removes the record. The device may be in the container under any name, on the host because
 * its namespace has ended or because ADD was interrupted, or deleted together with its namespace. Hardware that is nowhere keeps
 * its record: some process still has the namespace open, and GC or the next ADD looks again.
 * @param inside the container's namespace, if the call has one
 * @throws CniError 11 when another interface has its name
 */
export async function giveBack(call: Returning, record: DeviceRecord, inside?: Inside): Promise<void> {
  const giveUpAt = performance.now() + CLEANUP_MS;
  while (!tryGiveBack(call, record, inside)) {
    if (performance.now() > giveUpAt) {
      call.log.warn(
        `Cannot return device "${record.name}" of container "${record.containerId}": it is neither in "${record.netns.path}" nor on the host; ` +
          'if a process still uses that namespace, GC returns the device later',
      );
      return;
    }
    await Bun.sleep(LOOK_AGAIN_MS);
  }
}

/**
 * Like {@link giveBack}, but without waiting.
 * @returns whether nothing is left to do
 */
export function tryGiveBack(call: Returning, record: DeviceRecord, inside?: Inside): boolean {
  return withDeviceLock(call.environment, record, () => {
    // A later ADD of the same attachment has a record of its own.
    if (findRecord(call.environment, record)?.id !== record.id) return true;
    const left =
      (inside && leave(call, record, inside)) ?? inOldNetns(record, place => leave(call, record, place));
    if (left) restoreOn(call, left, record);
    else {
      const link = findOnHost(call.host, record);
      if (link === undefined && isHardware(record)) return false;
      if (link) finishReturn(call, link, record);
      else if (inside) {
        call.log.warn(
          `Device "${record.name}" does not come back: the container has deleted it or moved it elsewhere; a device that only looks like it stays`,
        );
      }
    }
    removeRecord(call.environment, record);
    return true;
  });
}

/**
 * Returns the devices of earlier attachments that are on the host already, so that they have their own names before the next
 * container gets them. The caller holds the lock of the device.
 */
function finishEarlier(call: Returning, link: Link, node: string): void {
  for (const record of listRecords(call.environment)) {
    if (!isDeviceOf(link, node, record)) continue;
    finishReturn(call, link, record);
    removeRecord(call.environment, record);
  }
}

/** Gives the device of a record its own name and state if it is on the host, and removes the record; nothing is taken from a container. */
function finishReturned(call: Returning, record: DeviceRecord): void {
  withDeviceLock(call.environment, record, () => {
    const link = findOnHost(call.host, record);
    if (link && findRecord(call.environment, record)?.id === record.id)
      finishEarlier(call, link, record.node);
  });
}

/**
 * Returns a device that has no record: the reference plugin attached it, or the record was lost. Like the reference's DEL it leaves the
 * device down.
 */
export function giveBackUnrecorded(call: Call<HostDeviceConf>): void {
  const link = findUnrecorded(call);
  if (link === undefined) return;
  const { container: socket, containerNetns: netns, host, env, conf } = call;
  const selector = findSelector(conf);
  const name = selector?.by === 'name' ? selector.name : (link.attrs.alias ?? '');
  const [{ node } = { node: '' }] = inNetns(netns, listDeviceNodes).filter(
    ({ index }) => index === link.index,
  );
  const identity = { name, node, permanentMac: link.attrs.permAddress, parent: parentOf(link) };
  withDeviceLock(call.environment, identity, () => {
    const came = moveOut(host, { socket, netns }, link, { name, ifname: env.ifname }, isSame(host, identity));
    setLink(host, came.index, { alias: '' });
  });
}

/**
 * What has no record must be something that a container cannot make: hardware, or a VLAN or veth whose lower device or other end is in
 * this namespace, and whose name the configuration has. The alias alone proves nothing, nor does a second DEL.
 */
function findUnrecorded(call: Call<HostDeviceConf>): Link | undefined {
  const { env, conf, log, prevResult } = call;
  if (call.findContainerNetns() === undefined) return undefined;
  const links = listLinks(call.container);
  const records = listRecords(call.environment);
  const hostId = ownIdIn(call.container);
  const selector = findSelector(conf);
  const lent = links.filter(link => {
    const { alias } = link.attrs;
    if (alias === undefined || findIfnameProblem(alias) !== undefined) return false;
    const isNamed = selector?.by === 'name' && alias === selector.name;
    const isProven = isNamed && link.attrs.linkNetnsId === hostId && isFromHost(call.host, link, alias);
    if (parentOf(link) === undefined && !isProven) return false;
    // One that has a record is another attachment's.
    return !records.some(record => isMarked(link, record) && record.netns.path === env.netns);
  });
  const told = prevResult?.interfaces
    ?.find(one => one.name === env.ifname && one.sandbox)
    ?.mac?.toLowerCase();
  const pci = selector && findPciAddress(selector);
  const found =
    lent.find(({ attrs, mac }) => {
      if (selector?.by === 'name') return attrs.alias === selector.name;
      if (selector?.by === 'mac') return (attrs.permAddress ?? mac) === selector.mac;
      return pci !== undefined && attrs.parentDevName === pci;
    }) ??
    lent.find(({ name }) => name === env.ifname) ??
    lent.find(({ mac }) => told !== undefined && mac === told);
  if (found === undefined && links.some(({ name }) => name === env.ifname)) {
    log.warn(
      `Interface "${env.ifname}" stays in the container: it has no record, and nothing proves that it is a device of the host`,
    );
  }
  return found;
}

/**
 * A container can make a macvlan or ipvlan beside its own, and pass off an interface that a plugin made as a device of the host. If the
 * host has the device, this one is another.
 */
function isFromHost(host: NetlinkSocket, link: Link, name: string): boolean {
  if (findLink(host, name)) return false;
  if (link.kind !== 'veth') return link.kind === 'vlan';
  const end = findLink(host, link.peer);
  return end?.master === 0 && findOwner(end.attrs.alias) === undefined;
}

function isSame(host: NetlinkSocket, identity: Identity): (came: Link) => boolean {
  return came => findOnHost(host, identity)?.index === came.index;
}

/** Moves the device out of a container. @returns the device on the host; undefined if it was not in the container */
function leave({ host, log }: Returning, record: DeviceRecord, inside: Inside): Link | undefined {
  const link = findInContainer(inside, record);
  if (link === undefined) return undefined;
  const home = moveOut(host, inside, link, record, isSame(host, record));
  for (const { from, table, priority } of record.rules) {
    try {
      removeRule(inside.socket, { from: parseCidr(from), table, priority });
    } catch (thrown) {
      log.warn(describeError(thrown));
    }
  }
  return home;
}

/** Runs a step in the namespace that the device was moved to, if that one still exists at its path. */
function inOldNetns<T>({ netns: { path, cookie } }: DeviceRecord, step: (place: Inside) => T): T | undefined {
  if (cookie !== undefined && findNetnsCookie(path) !== cookie) return undefined;
  const found = findNetns(path);
  if (found === undefined) return undefined;
  const isOwn = sameNetns(found, ownNetns());
  closeNetns(found);
  if (isOwn) return undefined;
  const netns = new ContainerNetns(path);
  try {
    return step(netns);
  } finally {
    netns.release();
  }
}

/**
 * The kernel brings a device home down and bare, with the alias unless the container has taken it. One that is up without our alias is
 * in use again, or ADD was interrupted before it was moved: that is left alone.
 */
function finishReturn(call: Returning, link: Link, record: DeviceRecord): void {
  if (isMarked(link, record) || !(link.flags & IFF_UP)) restoreOn(call, link, record);
}

/** What cannot be restored must not keep the container from being deleted. */
function restoreOn({ host, log }: Returning, link: Link, record: DeviceRecord): void {
  const own = rename(host, link, record.name);
  for (const problem of restore(host, own, record))
    log.warn(`Device "${record.name}" is back, but: ${problem}`);
}

/**
 * Moves a device into the container, where it is down. Its alias keeps the name that it had.
 * Same as: `ip link set <device> alias <device>`, then `ip link set <device> netns <netns> name <ifname>`
 */
function moveIn(
  host: NetlinkSocket,
  container: NetlinkSocket,
  link: Link,
  to: { readonly netns: Netns; readonly ifname: string },
): Link {
  setLink(host, link.index, { alias: link.name });
  setLink(host, link.index, { netnsFd: to.netns.fd, name: to.ifname });
  return getLink(container, to.ifname);
}

/**
 * Moves a device back to the host under its old name, where it is down.
 * @param isIt whether what came is the device: the container may have put another in its place since it was found
 * @throws CniError 11 when the host has another interface of that name, or another device came; the container then has it, unchanged
 */
function moveOut(
  host: NetlinkSocket,
  { socket: container, netns }: Inside,
  link: Link,
  { name, ifname }: { readonly name: string; readonly ifname: string },
  isIt: (found: Link) => boolean,
): Link {
  if (findLink(host, name)) throw nameTaken(name, ifname);
  setLink(container, link.index, { up: false });
  const home = openOwnNetns();
  try {
    // The name that it has in the container may be in use on the host, and what is seen there first should be its own.
    renameIfFree(container, link.index, name);
    setLink(container, link.index, { netnsFd: home.fd, name });
  } catch (thrown) {
    putBack(container, link);
    if (isNetlinkError(thrown, Errno.EEXIST)) throw nameTaken(name, ifname, thrown);
    throw thrown;
  } finally {
    closeNetns(home);
  }
  const came = getLink(host, name);
  if (isIt(came)) return came;
  setLink(host, came.index, { netnsFd: netns.fd, name: link.name });
  throw tryAgainLater(
    `Cannot return device "${ifname}" to the host as "${name}": the container put another device in its place while it was moved; run DEL again`,
  );
}

/**
 * Gives a device on the host its name, which it lost when its namespace ended.
 * @throws CniError 11 when another interface has that name
 */
function rename(host: NetlinkSocket, link: Link, name: string): Link {
  if (link.name === name) return link;
  if (findLink(host, name)) throw nameTaken(name, link.name);
  // Before Linux 6.2 only a device that is down can be renamed.
  setLink(host, link.index, { up: false });
  setLink(host, link.index, { name });
  return getLink(host, link.index);
}

/** In the container, another interface may have the name that the device has on the host. */
function renameIfFree(container: NetlinkSocket, index: number, name: string): void {
  tolerating([Errno.EEXIST], () => setLink(container, index, { name }));
}

/** The container keeps the device as it was: a later DEL tries again. */
function putBack(container: NetlinkSocket, { index, name }: Link): void {
  // The first error says more than one from here.
  attempt(() => {
    setLink(container, index, { name });
    setLink(container, index, { up: true });
  });
}

function nameTaken(name: string, ifname: string, cause?: unknown): CniError {
  return tryAgainLater(
    `Cannot return device "${ifname}" to the host as "${name}": another interface of the host has that name; rename it and run DEL again`,
    { cause },
  );
}
