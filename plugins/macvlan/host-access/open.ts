// How does the host reach a container, although the kernel keeps a master's own packets from the macvlans on it?
import type { PlannedRoute } from '../../../src/attach/addressing.ts';
import { stateOf } from '../../../src/attach/check.ts';
import { refuserFor } from '../../../src/attach/living-owner.ts';
import { attachmentOf } from '../../../src/attach/owner.ts';
import { addRoutes, checkRoutes } from '../../../src/attach/routes.ts';
import { cidrContains } from '../../../src/net/cidr.ts';
import { IP_BITS, type Ip } from '../../../src/net/ip.ts';
import { tryOut } from '../../../src/netlink/nft/batch.ts';
import { type Element, findElements } from '../../../src/netlink/nft/element.ts';
import { addEntries, deletePlaces, type Entry } from '../../../src/netlink/nft/entries.ts';
import { changeOwned, findOwnedProblems, placeOf } from '../../../src/netlink/nft/owned-table.ts';
import { skeletonChanges } from '../../../src/netlink/nft/skeleton.ts';
import { listAddresses, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE } from '../../../src/netlink/rtnl/addr.ts';
import { getLink, type Link } from '../../../src/netlink/rtnl/link.ts';
import { confirm, confirmAll } from '../../../src/plugin/confirm.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { deviceNameOf, ensureDevice, findDevice, linkLocalIpOf } from './device.ts';
import { withHostAccessLock } from './lock.ts';
import { deviceEntry, podEntries, SKELETON } from './table.ts';

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
    const wanted = entriesFor(call, device.name, ips);
    changeOwned(hostNft, [SKELETON], () => {
      const found = findElements(hostNft, wanted.map(placeOf));
      const missing = wanted.filter(({ element }, i) => found[i]?.comment !== element.comment);
      const rivals = wanted.flatMap((entry, i) => rivalOf(entry, found[i]) ?? []);
      refuserFor(call)(rivals);
      return [...deletePlaces(rivals.map(({ place }) => place)), ...addEntries(missing)];
    });
    addRoutes(host, device, routesTo(call, device, ips));
  });
}

/** @throws Error naming the first part of the host's access that is missing */
export function checkHostAccess(call: Call, inside: Link, ips: readonly Ip[]): void {
  const { host, hostNft } = call;
  const name = deviceNameOf({ index: inside.peer });
  const device = findDevice(host, { index: inside.peer });
  confirm(`the host's device "${name}"`, 'up', device ? stateOf(device) : 'missing');
  if (device === undefined) return;
  const wanted = entriesFor(call, name, ips);
  confirmAll("the host's access", findOwnedProblems(hostNft, [SKELETON], wanted));
  checkRoutes(host, device, routesTo(call, device, ips));
}

/** Checks that the packet filter can restrict the host's device. @throws NetlinkError */
export function probeHostAccess({ hostNft }: Pick<Call, 'hostNft'>): void {
  tryOut(hostNft, skeletonChanges(SKELETON));
}

function entriesFor(call: Call, device: string, ips: readonly Ip[]): Entry[] {
  return [deviceEntry(device), ...podEntries(attachmentOf(call), device, ips)];
}

/** The other attachment that an element belongs to. */
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
    const dst = { ip, prefix: IP_BITS[ip.family] };
    if (ip.family === 6) return { dst, source: linkLocalIpOf(device) };
    const candidates = own.filter(({ cidr }) => cidr.ip.family === 4).map(({ cidr }) => cidr);
    const source = candidates.find(cidr => cidrContains(cidr, ip)) ?? candidates[0];
    return { dst, source: source?.ip, scope: RT_SCOPE_LINK };
  });
}
