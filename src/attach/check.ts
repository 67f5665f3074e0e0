// Are the addresses and routes of an interface as ADD left them?
import type { ResultInterface } from '../cni/result.ts';
import { type Cidr, networkOf, renderCidr } from '../net/cidr.ts';
import { renderIp, sameIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { IFF_UP } from '../netlink/rtnl/link-header.ts';
import { listRoutes, type Route } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { confirm } from '../plugin/confirm.ts';
import type { PlannedRoute } from './addressing.ts';

/** linux/rtnetlink.h */
const RT_TABLE_MAIN = 254;

/** @throws Error naming the first address that the interface lacks */
export function checkAddresses(socket: NetlinkSocket, link: Link, wanted: readonly Cidr[]): void {
  const present = listAddresses(socket, link.index).map(({ cidr }) => renderCidr(cidr));
  for (const cidr of wanted) {
    const text = renderCidr(cidr);
    if (!present.includes(text)) confirm(`addresses of "${link.name}"`, text, present);
  }
}

/** @throws Error naming the first route that the interface lacks, in whatever table */
export function checkRoutes(socket: NetlinkSocket, link: Link, wanted: readonly PlannedRoute[]): void {
  const present = listRoutes(socket).filter(({ oif }) => oif === link.index);
  for (const route of wanted) {
    if (present.some(one => isSameRoute(one, route))) continue;
    confirm(`routes of "${link.name}"`, renderRoute(route), present.map(renderRoute));
  }
}

/** @throws Error when the hardware address is not the reported one; none reported is fine */
export function checkMac(name: string, reported: ResultInterface | undefined, link: Link): void {
  if (reported?.mac) confirm(`hardware address of ${name}`, reported.mac.toLowerCase(), link.mac);
}

/** `up` or `down`, as an administrator set it. */
export function stateOf(link: Link): string {
  return link.flags & IFF_UP ? 'up' : 'down';
}

function isSameRoute(found: Route, wanted: PlannedRoute): boolean {
  const network = networkOf(wanted.dst);
  if (!sameIp(networkOf(found.dst), network) || found.dst.prefix !== wanted.dst.prefix) return false;
  if ((wanted.table || RT_TABLE_MAIN) !== found.table) return false;
  return (
    wanted.gateway === undefined || (found.gateway !== undefined && sameIp(found.gateway, wanted.gateway))
  );
}

function renderRoute({ dst, gateway }: PlannedRoute): string {
  return `${renderCidr(dst)}${gateway ? ` via ${renderIp(gateway)}` : ''}`;
}
