// Is this the device of that record?
//
// Never by its name or index alone: both are given to other devices. Hardware is known by its place on the bus, and a function
// with several ports also by the address that is burnt in. Of the alias that ADD set, the name on the host and the hardware address, a device of software has two.
import { type Link, listLinks } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { DeviceRecord } from './record.ts';

/** The device of a record in the container that has it, even if the container changed one of its name, address and alias. */
export function findInContainer(container: NetlinkSocket, record: DeviceRecord): Link | undefined {
  const links = listLinks(container);
  if (record.parent) return links.find(link => isHardwareOf(link, record));
  const signsOf = (link: Link): number =>
    [isMarked(link, record), link.mac === record.mac, link.name === record.ifname].filter(Boolean).length;
  // The name alone says nothing: another interface may have it.
  const candidates = links.filter(link => isMarked(link, record) || link.mac === record.mac);
  return candidates.sort((a, b) => signsOf(b) - signsOf(a))[0];
}

/** The device of a record on the host. */
export function findOnHost(host: NetlinkSocket, record: DeviceRecord): Link | undefined {
  return listLinks(host).find(link => isRecorded(link, record));
}

/** Whether a device on the host is one that an earlier ADD has recorded, and that must therefore have come back since. */
export function isRecorded(link: Link, record: DeviceRecord): boolean {
  if (record.parent) return isHardwareOf(link, record);
  const signs = [isMarked(link, record), link.name === record.name, link.mac === record.mac];
  return signs.filter(Boolean).length >= 2;
}

/** Whether the device still has the alias that ADD set: then it came back by other means than a DEL. */
export function isMarked({ attrs }: Link, { name }: DeviceRecord): boolean {
  return attrs.alias === name;
}

/** The kernel moves hardware to the initial namespace when its namespace ends, and deletes everything else. */
export function isHardware({ parent, kind }: DeviceRecord): boolean {
  return parent !== undefined || kind === '';
}

function isHardwareOf({ attrs, name: ownName }: Link, { parent, permanentMac, name }: DeviceRecord): boolean {
  if (attrs.parentDevName !== parent?.name || attrs.parentDevBusName !== parent?.bus) return false;
  return permanentMac === undefined
    ? attrs.alias === name || ownName === name
    : attrs.permAddress === permanentMac;
}
