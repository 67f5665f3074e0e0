// Which routes exist in a namespace, apart from those that every address creates?
import { renderCidr, subnetOf } from '../../net/cidr.ts';
import { renderIp } from '../../net/ip.ts';
import { listAddresses } from '../../netlink/rtnl/addr.ts';
import { listRoutes, type Route, RT_TABLE_MAIN } from '../../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import { deviceKey } from './devices.ts';
import type { StateObject } from './object.ts';

/** Unicast routes of all tables, without those that the kernel adds itself. */
export function readRoutes(socket: NetlinkSocket, nameOf: (index: number) => string): StateObject[] {
  const connected = new Set(
    listAddresses(socket).map(({ cidr, index }) => `${renderCidr(subnetOf(cidr))} ${index}`),
  );
  return listRoutes(socket)
    .filter(route => route.gateway !== undefined || !connected.has(`${renderCidr(route.dst)} ${route.oif}`))
    .filter(route => !isLinkLocal(route))
    .map(route => {
      const words = renderRoute(route, nameOf);
      return {
        key: words,
        words,
        parent: deviceKey(nameOf(route.oif)),
        shape: `IPv${route.dst.ip.family} route`,
      };
    });
}

function renderRoute(route: Route, nameOf: (index: number) => string): string {
  const { dst, gateway, oif, table = RT_TABLE_MAIN, priority } = route;
  const parts = [
    `route ${dst.prefix === 0 && gateway ? 'default' : renderCidr(dst)}`,
    ...(gateway === undefined ? [] : [`via ${renderIp(gateway)}`]),
    `on ${nameOf(oif)}`,
    ...(table === RT_TABLE_MAIN ? [] : [`in table ${table}`]),
    // 1024 is the kernel's default for IPv6.
    ...(priority === undefined || priority === 1024 ? [] : [`metric ${priority}`]),
  ];
  return parts.join(' ');
}

/** fe80::/64 and multicast: created for every device that comes up. */
function isLinkLocal({ dst, gateway }: Route): boolean {
  if (dst.ip.family !== 6 || gateway !== undefined) return false;
  const text = renderCidr(dst);
  return text === 'fe80::/64' || text.startsWith('ff00::');
}
