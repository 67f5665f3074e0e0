// What does the kernel have in the namespaces of containers: devices, addresses, routes?
import { defined } from '../cni/defined.ts';
import { renderCidr } from '../net/cidr.ts';
import { renderIp } from '../net/ip.ts';
import { type Address, listAddresses, RT_SCOPE_UNIVERSE } from '../netlink/rtnl/addr.ts';
import { type Link, listLinks } from '../netlink/rtnl/link.ts';
import { IFF_UP } from '../netlink/rtnl/link-header.ts';
import { netnsIdOf } from '../netlink/rtnl/netns-id.ts';
import { listRoutes, RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, findNetns, inNetns, type Netns, sameNetns } from '../sys/netns.ts';
import type { NodeDevice, NodeRoute } from './model.ts';

/** An interface of a container. */
export interface Inside {
  readonly device: NodeDevice;
  readonly routes: readonly NodeRoute[];
  /** Index of its other end, or of its lower device, on the host; undefined if that is elsewhere. */
  readonly hostIndex: number | undefined;
}

/**
 * Reads all interfaces of one namespace, with three dumps.
 * @param host the namespace of this process
 * @returns by name; undefined if the namespace is gone, may not be entered, or is the host's own
 */
export function readInside(path: string, host: Netns): ReadonlyMap<string, Inside> | undefined {
  const netns = findNetns(path);
  if (netns === undefined) return undefined;
  try {
    if (sameNetns(netns, host)) return undefined;
    const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
    try {
      return look(socket, netnsIdOf(socket, host.fd));
    } finally {
      socket.close();
    }
  } catch {
    return undefined;
  } finally {
    closeNetns(netns);
  }
}

function look(socket: NetlinkSocket, hostId: number): ReadonlyMap<string, Inside> {
  const links = listLinks(socket);
  const addresses = listAddresses(socket);
  const routes = listRoutes(socket).filter(({ table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN);
  return new Map(
    links.map(link => {
      const own = routes.filter(({ oif }) => oif === link.index);
      const isOnHost = link.peer > 0 && link.attrs.linkNetnsId === hostId;
      return [
        link.name,
        {
          device: toDevice(link, links, addresses),
          routes: own.map(({ dst, gateway }) => ({
            destination: renderCidr(dst),
            ...defined({ gateway: gateway && renderIp(gateway) }),
          })),
          hostIndex: isOnHost ? link.peer : undefined,
        },
      ];
    }),
  );
}

/** A device with its addresses, except for those that are only valid on the link. */
export function toDevice(
  { index, name, kind, mac, mtu, flags, master }: Link,
  links: readonly Pick<Link, 'index' | 'name'>[],
  addresses: readonly Address[],
): NodeDevice {
  const own = addresses.filter(one => one.index === index && one.scope === RT_SCOPE_UNIVERSE);
  const masterName = master > 0 ? links.find(one => one.index === master)?.name : undefined;
  return {
    name,
    index,
    kind,
    mtu,
    up: (flags & IFF_UP) !== 0,
    addresses: own.map(({ cidr }) => renderCidr(cidr)),
    ...defined({ mac, master: masterName }),
  };
}
