// Where does a chain run when it is only tried: a fake host, containers on it, and a world outside?
import { existsSync, writeFileSync } from 'node:fs';
import { ensureDirSync } from 'fs-extra/esm';
import { parseCidr } from '../net/cidr.ts';
import { type Ip, parseIp } from '../net/ip.ts';
import { addAddress } from '../netlink/rtnl/addr.ts';
import { createLink, getLink, setLink } from '../netlink/rtnl/link.ts';
import { addRoute } from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { createNetnsAt, inNetns, type Netns, openNetns, openOwnNetns } from '../sys/netns.ts';
import { trySysctl } from '../sys/sysctl.ts';

/** Where container runtimes keep namespaces too; in the lab the directory is its own. */
const NETNS_DIR = '/run/netns';

/** A corner of the private ranges (RFC 1918, RFC 4193) that networks which are tried rarely use. */
const HOST = { 4: '172.31.254.1/24', 6: 'fd00:ca7e::1/64' } as const;
const OUTSIDE = { 4: '172.31.254.2/24', 6: 'fd00:ca7e::2/64' } as const;
const ANYWHERE = { 4: '0.0.0.0/0', 6: '::/0' } as const;

/** A namespace with what is needed to look at it. */
export interface Place {
  readonly name: string;
  readonly netns: Netns;
  readonly route: NetlinkSocket;
  readonly netfilter: NetlinkSocket;
}

/** The fake host with its surroundings. */
export interface Lab {
  readonly host: Place;
  readonly outside: Place;
  /** Address of the fake host as the outside knows it, by family. */
  readonly hostAddress: Readonly<Record<4 | 6, Ip>>;
  readonly outsideAddress: Readonly<Record<4 | 6, Ip>>;
  /** Families that this kernel has. */
  readonly families: readonly (4 | 6)[];
}

/**
 * Makes the namespace of the calling process the fake host, and connects it with an outside by a veth pair: routed
 * both ways, nothing forwarded yet.
 */
export function createLab(): Lab {
  ensureDirSync(NETNS_DIR);
  const host = openPlace('host', openOwnNetns());
  const outside = createPlace('outside');
  const families = existsSync('/proc/sys/net/ipv6') ? ([4, 6] as const) : ([4] as const);
  // Takes an index there: when both ends have the same one, the kernel tells them only a second later that they are
  // connected (linkwatch_urgent_event in net/core/link_watch.c), and IPv6 waits for that.
  createLink(outside.route, { name: 'unused', kind: 'bridge' });
  createLink(host.route, {
    name: 'outside0',
    kind: 'veth',
    peer: { name: 'eth0', netnsFd: outside.netns.fd },
  });
  connect(host, 'outside0', HOST, OUTSIDE, families);
  connect(outside, 'eth0', OUTSIDE, HOST, families);
  // New namespaces inherit some of these from the machine; a link that needs forwarding has to ask for it.
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '0');
  trySysctl('net/ipv6/conf/all/forwarding', '0');
  return { host, outside, hostAddress: ipsOf(HOST), outsideAddress: ipsOf(OUTSIDE), families };
}

/** A namespace like a runtime makes it for a container: a loopback device that is down, and nothing else. */
export function createContainer(name: string): Place {
  return createPlace(name);
}

function createPlace(name: string): Place {
  const path = `${NETNS_DIR}/${name}`;
  createNetnsAt(path);
  return openPlace(name, openNetns(path));
}

function openPlace(name: string, netns: Netns): Place {
  const route = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  const netfilter = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
  return { name, netns, route, netfilter };
}

function connect(
  place: Place,
  device: string,
  own: typeof HOST | typeof OUTSIDE,
  other: typeof HOST | typeof OUTSIDE,
  families: readonly (4 | 6)[],
): void {
  const { route: socket, netns } = place;
  setLink(socket, getLink(socket, 'lo').index, { up: true });
  const { index } = getLink(socket, device);
  // While the kernel looks for duplicates of its link-local address, a router cannot find its neighbours.
  inNetns(netns, () => trySysctl(`net/ipv6/conf/${device}/accept_dad`, '0'));
  for (const family of families) addAddress(socket, index, parseCidr(own[family]), { nodad: true });
  setLink(socket, index, { up: true });
  for (const family of families) {
    const gateway = parseCidr(other[family]).ip;
    addRoute(socket, { dst: parseCidr(ANYWHERE[family]), gateway, oif: index });
  }
}

function ipsOf(cidrs: Readonly<Record<4 | 6, string>>): Record<4 | 6, Ip> {
  const ipOf = (text: string) => parseIp(text.replace(/\/.*/, ''));
  return { 4: ipOf(cidrs[4]), 6: ipOf(cidrs[6]) };
}
