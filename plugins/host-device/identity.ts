// Is this the device of that record?
//
// A container can give a device that it makes any name, alias, hardware address, index and kind, and it can make a second macvlan
// beside its first. So hardware is known by its place on the bus, and a function with several ports also by the address that is
// burnt in; everything else by the number that its directory in sysfs has.
import { type Link, listLinks } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { listDeviceNodes } from '../../src/sys/sysctl.ts';
import type { DeviceRecord } from './record.ts';

/** A container's namespace. */
export interface Inside {
  readonly socket: NetlinkSocket;
  readonly netns: Netns;
}

/** What tells one device from every other. */
export type Identity = Pick<DeviceRecord, 'name' | 'parent' | 'permanentMac' | 'node'>;

/** The device that it belongs to, such as a PCI function; software has none. */
export function parentOf({ attrs }: Pick<Link, 'attrs'>): DeviceRecord['parent'] {
  const { parentDevName: name, parentDevBusName: bus } = attrs;
  return name === undefined ? undefined : { bus, name };
}

/**
 * What tells a device on the host from every other.
 * @throws SystemError for a device of software, if sysfs cannot be mounted
 */
export function identify({ index, attrs }: Link): Pick<DeviceRecord, 'parent' | 'node'> {
  const parent = parentOf({ attrs });
  try {
    return { parent, node: listDeviceNodes().find(one => one.index === index)?.node ?? '' };
  } catch (thrown) {
    if (parent) return { parent, node: '' };
    throw thrown;
  }
}

/** The device of a record in the container that has it, whatever the container has changed. */
export function findInContainer({ socket, netns }: Inside, identity: Identity): Link | undefined {
  return findAmong(socket, identity, () => inNetns(netns, listDeviceNodes));
}

/** The device of a record on the host. */
export function findOnHost(host: NetlinkSocket, identity: Identity): Link | undefined {
  return findAmong(host, identity, listDeviceNodes);
}

/** Whether a device with that identity is the one of a record. */
export function isDeviceOf(link: Link, node: string, record: Identity): boolean {
  return record.parent ? isHardwareOf(link, record) : node !== '' && node === record.node;
}

function findAmong(
  socket: NetlinkSocket,
  identity: Identity,
  listNodes: typeof listDeviceNodes,
): Link | undefined {
  const links = listLinks(socket);
  if (identity.parent) return links.find(link => isHardwareOf(link, identity));
  const found = listNodes().find(({ node }) => node === identity.node);
  return found && links.find(({ index }) => index === found.index);
}

/** Whether the device still has the alias that ADD set: then it came back by other means than a DEL. */
export function isMarked({ attrs }: Link, { name }: Pick<DeviceRecord, 'name'>): boolean {
  return attrs.alias === name;
}

/** The kernel moves hardware to the initial namespace when its namespace ends, and deletes everything else. */
export function isHardware({ parent, kind }: DeviceRecord): boolean {
  return parent !== undefined || kind === '';
}

function isHardwareOf({ attrs, name: ownName }: Link, { parent, permanentMac, name }: Identity): boolean {
  if (attrs.parentDevName !== parent?.name || attrs.parentDevBusName !== parent?.bus) return false;
  return permanentMac === undefined
    ? attrs.alias === name || ownName === name
    : attrs.permAddress === permanentMac;
}
