// How does the container's interface get its addresses and routes?
import { isNetlinkError } from '../netlink/errors.ts';
import { addAddress } from '../netlink/rtnl/addr.ts';
import { type Link, setLink } from '../netlink/rtnl/link.ts';
import { addRoute } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { Errno } from '../sys/errno.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import { findSysctl, trySysctl, writeSysctl } from '../sys/sysctl.ts';
import type { ContainerAddressing } from './addressing.ts';

/**
 * Gives the container's interface its addresses, brings it up and adds the routes. Addresses come first, so that the
 * kernel announces them when the link comes up (arp_notify, ndisc_notify).
 * @param detectDuplicates leave IPv6 duplicate address detection on; the container waits for it then
 */
export function configureContainer(
  container: NetlinkSocket,
  netns: Netns,
  link: Link,
  { ips, routes }: ContainerAddressing,
  detectDuplicates: boolean,
): void {
  const families = new Set(ips.map(({ cidr }) => cidr.ip.family));
  inNetns(netns, () => writeSysctls(link.name, families, detectDuplicates));
  for (const { cidr } of ips) addAddress(container, link.index, cidr, { nodad: !detectDuplicates });
  setLink(container, link.index, { up: true });
  for (const route of routes) {
    try {
      addRoute(container, { ...route, oif: link.index });
    } catch (thrown) {
      // The kernel has made the subnet's own route already, and IPAM may list one twice.
      if (!isNetlinkError(thrown, Errno.EEXIST)) throw thrown;
    }
  }
}

function writeSysctls(ifname: string, families: ReadonlySet<4 | 6>, detectDuplicates: boolean): void {
  trySysctl(`net/ipv4/conf/${ifname}/arp_notify`, '1');
  const conf = `net/ipv6/conf/${ifname}`;
  trySysctl(`${conf}/accept_dad`, detectDuplicates ? '1' : '0');
  if (detectDuplicates) trySysctl(`${conf}/enhanced_dad`, '1');
  if (!families.has(6)) return;
  trySysctl(`${conf}/ndisc_notify`, '1');
  for (const name of ['lo', ifname]) {
    const disabled = findSysctl(`net/ipv6/conf/${name}/disable_ipv6`);
    if (disabled === undefined) {
      throw new Error(
        `Cannot give "${ifname}" an IPv6 address: this kernel has no IPv6; leave its range out of "ipam"`,
      );
    }
    if (disabled !== '0') writeSysctl(`net/ipv6/conf/${name}/disable_ipv6`, '0');
  }
  trySysctl(`${conf}/keep_addr_on_down`, '1');
}
