// Which devices does the host have, and what are its bridges?
import { findOwner } from '../cni/attachment.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { toDevice } from './inside.ts';
import type { NodeBridge, NodeDevice } from './model.ts';

/** The devices of this process's namespace. */
export interface HostDevices {
  readonly byIndex: ReadonlyMap<number, NodeDevice>;
  /** Devices that carry the name of an attachment as alias; the name as in the alias. */
  readonly owned: readonly { readonly owner: string; readonly device: NodeDevice }[];
}

/** Reads them with two dumps. */
export function readHost(): HostDevices {
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  try {
    const links = listLinks(socket);
    const addresses = listAddresses(socket);
    const masters = new Set(links.map(({ master }) => master));
    const named = links.filter(({ index }) => masters.has(index));
    const rows = links.map(link => ({ alias: link.attrs.alias, device: toDevice(link, named, addresses) }));
    return {
      byIndex: new Map(rows.map(({ device }) => [device.index, device])),
      owned: rows.flatMap(({ alias, device }) =>
        alias !== undefined && findOwner(alias) ? [{ owner: alias, device }] : [],
      ),
    };
  } finally {
    socket.close();
  }
}

/**
 * The bridges of that name and those with one of the ports.
 * @param names of devices that networks make or attachments are ports of
 */
export function bridgesIn({ byIndex }: HostDevices, names: ReadonlySet<string>): NodeBridge[] {
  const devices = [...byIndex.values()];
  const bridges = devices.filter(({ kind, name }) => kind === BRIDGE && names.has(name));
  return bridges.map(device => ({
    device,
    ports: devices
      .filter(({ master }) => master === device.name)
      .map(({ name }) => name)
      .sort(),
  }));
}

const BRIDGE = 'bridge';
