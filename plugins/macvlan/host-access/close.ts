// How does the host's access end: that of one attachment, or of those that GC does not keep?
//
// Routes carry no name, so they follow from the elements: a route to an address that no element has belongs to no attachment. A
// flush of the packet filter takes the elements of all, so such a route is kept as long as an interface has its address.
import { noteOf } from '../../../src/attach/handle.ts';
import { attachmentOf } from '../../../src/attach/owner.ts';
import { findHolders } from '../../../src/ipam/holders.ts';
import { IP_BITS, type Ip, renderIp } from '../../../src/net/ip.ts';
import { commitAfterReading } from '../../../src/netlink/nft/batch.ts';
import { listElements } from '../../../src/netlink/nft/element.ts';
import { deletePlaces, type Entry } from '../../../src/netlink/nft/entries.ts';
import { listOwned, placeOf } from '../../../src/netlink/nft/owned-table.ts';
import { listAddresses, RT_SCOPE_UNIVERSE } from '../../../src/netlink/rtnl/addr.ts';
import { type Link, removeLink } from '../../../src/netlink/rtnl/link.ts';
import { listRoutes, type Route, removeRoute } from '../../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { isStaleNote, type KeptAttachments } from '../../../src/plugin/kept.ts';
import { listDevices } from './device.ts';
import { withHostAccessLock } from './lock.ts';
import { DEVICES, OWNED_SETS } from './table.ts';

/** Ends the host's access to the call's attachment, whose device is gone. */
export function closeHostAccess(call: Call): void {
  const own = noteOf(attachmentOf(call));
  closeAccess(call, note => note === own);
}

/** Ends the host's access to the network's attachments that GC does not keep. */
export function closeStaleHostAccess(call: Call, kept: KeptAttachments): void {
  closeAccess(call, note => isStaleNote(note, call.network, kept));
}

/** Whether the host has access to the call's attachment. */
export function isOpenTo(call: Call): boolean {
  const own = noteOf(attachmentOf(call));
  return listOwned(call.hostNft, OWNED_SETS, note => note === own).length > 0;
}

function closeAccess(call: Call, isGone: (note: string) => boolean): void {
  const { host, hostNft } = call;
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
  return listRoutes(host).filter(({ oif, dst }) => oif === index && dst.prefix === IP_BITS[dst.ip.family]);
}

/** Of the routes that have no element, those whose address an interface of a container has. */
function withoutUnheld(routes: readonly Route[], isOfGone: (route: Route) => boolean): Route[] {
  const doubtful = routes.filter(route => !isOfGone(route));
  if (doubtful.length === 0) return [];
  const holders = findHolders();
  if (holders === undefined) return doubtful;
  return doubtful.filter(({ dst }) => holders.get(renderIp(dst.ip))?.some(({ isHere }) => !isHere));
}

function keysOf(entries: readonly Entry[]): ReadonlySet<string> {
  return new Set(entries.map(({ element: { key } }) => keyOf(String(key[0]), key[1] as Ip)));
}

function keyOf(device: string, ip: Ip): string {
  return `${device} ${renderIp(ip)}`;
}
