// How do neighbours learn that an address has moved to the container's interface?
//
// Addresses are handed out again. A host or a container that has spoken to the former owner keeps its hardware address, and sends
// packets there until the entry fails: five seconds in state DELAY, then three unanswered probes. The kernel announces addresses
// when an interface comes up (arp_notify, ndisc_notify), but a bridge's port does not forward yet at that moment, and the
// announcement is lost.
import type { Ip } from '../net/ip.ts';
import { type Link, setLink } from '../netlink/rtnl/link.ts';
import { findForwardingPort, findNeighbour } from '../netlink/rtnl/neighbour.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call } from '../plugin/define.ts';

/**
 * Has the kernel announce the interface's addresses again: a gratuitous ARP request for each of IPv4, an unsolicited neighbour
 * advertisement for each of IPv6 (NETDEV_CHANGEADDR in net/ipv4/devinet.c and net/ipv6/ndisc.c). To be called once packets pass.
 * Nothing is announced where another port of the bridge answers for one of the addresses: that would take its packets away.
 * Same as: `ip link set eth0 address <the one that it has>`
 */
export function announceAddresses(
  call: Pick<Call, 'container' | 'host'>,
  { index, mac }: Pick<Link, 'index' | 'mac'>,
  bridge: Pick<Link, 'index'>,
  ips: readonly Ip[],
): void {
  if (ips.some(ip => isElsewhere(call.host, bridge.index, ip, mac))) return;
  setLink(call.container, index, { mac });
}

function isElsewhere(host: NetlinkSocket, bridge: number, ip: Ip, own: string | undefined): boolean {
  const mac = findNeighbour(host, bridge, ip)?.mac;
  return mac !== undefined && mac !== own && findForwardingPort(host, bridge, mac) !== undefined;
}
