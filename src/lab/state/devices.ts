// Which network devices exist in a namespace?
import { type Link, listLinks } from '../../netlink/rtnl/link.ts';
import { IFF_ALLMULTI, IFF_PROMISC, IFF_UP } from '../../netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import type { StateObject } from './object.ts';

/** Devices, and their names by index for describing what is attached to them. */
export function readDevices(socket: NetlinkSocket): {
  objects: StateObject[];
  nameOf: (index: number) => string;
} {
  const devices = listLinks(socket);
  const names = new Map(devices.map(link => [link.index, link.name]));
  const nameOf = (index: number) => names.get(index) ?? `device ${index}`;
  return { objects: devices.map(link => describe(link, nameOf)), nameOf };
}

/** Key of a device in a state. */
export function deviceKey(name: string): string {
  return `link ${name}`;
}

function describe(link: Link, nameOf: (index: number) => string): StateObject {
  const { name, kind, master, flags, mtu, mac, attrs } = link;
  const port = portStateOf(attrs.linkinfo?.portData);
  const under = master === 0 ? '' : ` in ${nameOf(master)}${port.hairpin === 'on' ? ', hairpin' : ''}`;
  return {
    key: deviceKey(name),
    words: `${kind === '' ? 'device' : kind} ${name}${under}`,
    // A bridge belongs to its network. Every other kind of device belongs to one container.
    shape: kind === 'bridge' ? 'bridge' : `device of kind ${kind}`,
    state: {
      state: flags & IFF_UP ? 'up' : 'down',
      mtu: String(mtu),
      // A bridge without a configured address takes a port's address, which no plugin decides.
      ...(kind === 'bridge' || mac === undefined ? {} : { mac }),
      promisc: onOff(flags & IFF_PROMISC),
      allmulti: onOff(flags & IFF_ALLMULTI),
      txqlen: String(attrs.txqlen ?? 0),
      master: master === 0 ? 'none' : nameOf(master),
      ...port,
    },
  };
}

function portStateOf(port: unknown): Record<string, string> {
  if (port === null || typeof port !== 'object' || port instanceof Uint8Array) return {};
  const { hairpin, isolated } = port as { hairpin?: number; isolated?: number };
  return { hairpin: onOff(hairpin ?? 0), isolated: onOff(isolated ?? 0) };
}

function onOff(value: number): string {
  return value ? 'on' : 'off';
}
