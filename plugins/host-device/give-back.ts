// How does a device come home, wherever it is?
import { findOwner } from '../../src/cni/attachment.ts';
import { describeError } from '../../src/cni/errors.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import { parseCidr } from '../../src/net/ip.ts';
import { findLink, IFF_UP, type Link, listLinks, ownIdIn, setLink } from '../../src/netlink/rtnl/link.ts';
import { removeRule } from '../../src/netlink/rtnl/rule.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import { ContainerNetns } from '../../src/plugin/invocation.ts';
import { closeNetns, findNetns, inNetns, ownNetns, sameNetns } from '../../src/sys/netns.ts';
import { findNetnsCookie } from '../../src/sys/netns-identity.ts';
import { listDeviceNodes } from '../../src/sys/sysctl.ts';
import { moveOut, rename, restore } from './capture.ts';
import { findSelector, type HostDeviceConf } from './config.ts';
import {
  type DeviceRecord,
  findInContainer,
  findOnHost,
  findRecord,
  type Identity,
  type Inside,
  isDeviceOf,
  isHardware,
  isMarked,
  listRecords,
  parentOf,
  removeRecord,
  withDeviceLock,
} from './record.ts';
import { findPciAddress } from './select.ts';

/** The part of a call that returning a device needs. */
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
export function finishEarlier(call: Returning, link: Link, node: string): void {
  for (const record of listRecords(call.environment)) {
    if (!isDeviceOf(link, node, record)) continue;
    finishReturn(call, link, record);
    removeRecord(call.environment, record);
  }
}

/** Gives the device of a record its own name and state if it is on the host, and removes the record; nothing is taken from a container. */
export function finishReturned(call: Returning, record: DeviceRecord): void {
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
