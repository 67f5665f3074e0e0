// Which device does the host have on a master, beside those of its containers?
import { derivedMac } from '../../../src/attach/mac.ts';
import { explainRefusal } from '../../../src/attach/upper/create.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import type { Cidr } from '../../../src/net/cidr.ts';
import { type Ip, ipFromBytes, sameIp } from '../../../src/net/ip.ts';
import { parseMac } from '../../../src/net/mac.ts';
import { addAddressRequest, listAddresses } from '../../../src/netlink/rtnl/addr.ts';
import {
  findLink,
  getLink,
  type Link,
  listLinks,
  removeLink,
  setLinkRequest,
} from '../../../src/netlink/rtnl/link.ts';
import { MACVLAN_MODES } from '../../../src/netlink/rtnl/link-attrs.ts';
import { createUpper } from '../../../src/netlink/rtnl/upper.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { ensureSysctl, findSysctl, trySysctl } from '../../../src/sys/sysctl.ts';

const ALIAS = 'catena: host access';
/** With the master's index, a name of at most fifteen characters. */
const PREFIX = 'hmv';

/** Name of the host's device on a master. */
export function deviceNameOf(master: Pick<Link, 'index'>): string {
  return `${PREFIX}${master.index}`;
}

/** The host's device on a master, if there is one. */
export function findDevice(host: NetlinkSocket, master: Pick<Link, 'index'>): Link | undefined {
  const link = findLink(host, deviceNameOf(master));
  return link && isOurs(link) && link.peer === master.index ? link : undefined;
}

/** The host's devices on all masters. */
export function listDevices(host: NetlinkSocket): Link[] {
  return listLinks(host).filter(isOurs);
}

/** Whether the host has a device on any master. */
export function hasDevices(host: NetlinkSocket): boolean {
  return listDevices(host).length > 0;
}

/**
 * The host's device on a master, up; made unless it exists. Its hardware address is derived from the master's.
 * @throws CniError 7 when the master cannot carry it, or another device has its name
 */
export function ensureDevice(host: NetlinkSocket, master: Link): Link {
  const device = findDevice(host, master) ?? make(host, master);
  const own = linkLocalOf(device);
  const hasIpv6 = setSysctls(device.name);
  const hasOwn = listAddresses(host, device.index).some(({ cidr }) => sameIp(cidr.ip, own.ip));
  host.requestAll([
    // Derived from an address that no other device of the link has, so it need not be probed for.
    ...(hasIpv6 && !hasOwn ? [addAddressRequest(device.index, own, { nodad: true })] : []),
    setLinkRequest(device.index, { up: true }),
  ]);
  return getLink(host, device.index);
}

/** The address by which the host speaks to pods over IPv6: the one that the device has. */
export function linkLocalIpOf(device: Link): Ip {
  return linkLocalOf(device).ip;
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
    throw new CniError(
      ErrorCode.invalidConfig,
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

/** RFC 4291, appendix A: the modified EUI-64 of the hardware address. */
function linkLocalOf({ mac = '' }: Pick<Link, 'mac'>): Cidr {
  const [first = 0, ...rest] = parseMac(mac);
  const [b = 0, c = 0, d = 0, e = 0, f = 0] = rest;
  const bytes = Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, first ^ 2, b, c, 0xff, 0xfe, d, e, f);
  return { ip: ipFromBytes(bytes), prefix: 64 };
}
