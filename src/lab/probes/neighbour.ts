// Can two containers of the network reach each other?
import { type Ip, renderIp, sameIp } from '../../net/ip.ts';
import { listAddresses, RT_SCOPE_LINK } from '../../netlink/rtnl/addr.ts';
import { findLink } from '../../netlink/rtnl/link.ts';
import { ping } from '../ping.ts';
import { renderTime } from '../words.ts';
import { type Attached, containerIps, finding, type Probe, type Scene } from './probe.ts';

/**
 * Promised by: being on one network, unless a plugin isolates its ports (`portIsolation`). Containers without addresses of
 * their own probe each other's link-local ones, which shows that frames pass.
 */
export function neighbourProbes({ plugins, container, neighbour, ifname }: Scene): Probe[] {
  // A hardware address in the file is the same for both containers, so they cannot reach each other.
  const apart = plugins.some(({ conf }) => conf.portIsolation === true || (conf.mac ?? '') !== '');
  if (neighbour === undefined || apart) return [];
  const own = containerIps(container);
  const theirs = containerIps(neighbour).filter(ip => !own.some(mine => sameIp(mine, ip)));
  if (theirs.length) {
    return theirs.map(ip => ({
      what: `a second container replies at ${renderIp(ip)}`,
      run: () => ask(container, ip, 0),
    }));
  }
  const index = findLink(container.place.route, ifname)?.index;
  const address = linkLocalOf(neighbour, ifname);
  if (own.length || index === undefined || address === undefined) return [];
  return [
    {
      what: `a second container replies at ${renderIp(address)} (layer 2)`,
      run: () => ask(container, address, index),
    },
  ];
}

function ask(container: Attached, ip: Ip, scope: number) {
  const ms = ping(container.place.netns, ip, scope);
  return ms === undefined ? finding(false, 'no reply') : finding(true, renderTime(ms));
}

function linkLocalOf({ place }: Attached, ifname: string): Ip | undefined {
  const link = findLink(place.route, ifname);
  if (link === undefined) return undefined;
  const found = listAddresses(place.route, link.index).find(
    ({ cidr, scope }) => cidr.ip.family === 6 && scope === RT_SCOPE_LINK,
  );
  return found?.cidr.ip;
}
