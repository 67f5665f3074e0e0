// Which devices have the host and the namespaces of containers, with which addresses, routes and rules?
import { findOwner } from '../cni/attachment.ts';
import { defined } from '../cni/json.ts';
import { type Cidr, IP_BITS, type Ip, renderCidr, renderIp, subnetKey } from '../net/ip.ts';
import { RT_SCOPE_UNIVERSE } from '../netlink/rtnl/addr.ts';
import { IFF_UP, type Link, netnsIdOf } from '../netlink/rtnl/link.ts';
import { RT_TABLE_MAIN, RTPROT_KERNEL, waysOf } from '../netlink/rtnl/route.ts';
import type { Rule } from '../netlink/rtnl/rule.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { Tables } from '../netlink/tables.ts';
import { closeNetns, findNetns, inNetns, ownNetns, sameNetns } from '../sys/netns.ts';
import type { NodeBridge, NodeDevice, NodeRoute } from './model.ts';

/** The devices of this process's namespace. */
interface HostDevices {
  readonly byIndex: ReadonlyMap<number, NodeDevice>;
  /** Devices that carry the name of an attachment as alias, by it. */
  readonly owned: ReadonlyMap<string, NodeDevice>;
}

/** Needs two tables. */
export function readHost(tables: Tables): HostDevices {
  const masters = new Set(tables.links.map(({ master }) => master));
  const named = tables.links.filter(({ index }) => masters.has(index));
  const rows = tables.links.map(link => [link.attrs.alias ?? '', toDevice(link, named, tables)] as const);
  return {
    byIndex: new Map(rows.map(([, device]) => [device.index, device])),
    owned: new Map(rows.filter(([alias]) => findOwner(alias))),
  };
}

/** A route of the host's main table; prefix 0 is the default route. */
export interface HostRoute {
  readonly dst: Cidr;
  readonly device: string;
  /** The kernel made it for an address of the device: without it the node has lost that link. */
  readonly isOfAddress?: true;
}

/** Those of the main table: a router may have a million, and many containers to find the way to. */
export class HostRoutes {
  readonly all: readonly HostRoute[];
  #byPlace: ReadonlyMap<string, HostRoute> | undefined;
  #prefixes: readonly number[] | undefined;

  constructor(all: readonly HostRoute[]) {
    this.all = all;
  }

  /** The most specific one that leads to an address. */
  find(ip: Ip): HostRoute | undefined {
    this.#prefixes ??= [...new Set(this.all.map(({ dst }) => dst.prefix))].sort((a, b) => b - a);
    for (const prefix of this.#prefixes) {
      const found = prefix <= IP_BITS[ip.family] && this.findTo({ ip, prefix });
      if (found) return found;
    }
    return undefined;
  }

  /** How long its prefix is; negative if none leads there. */
  longestMatch(ip: Ip): number {
    return this.find(ip)?.dst.prefix ?? -1;
  }

  /** The first one to a destination. */
  findTo(dst: Cidr): HostRoute | undefined {
    this.#byPlace ??= new Map(this.all.toReversed().map(route => [subnetKey(route.dst), route]));
    return this.#byPlace.get(subnetKey(dst));
  }
}

/** Needs two tables. */
export function readHostRoutes({ links, routes }: Tables): HostRoutes {
  const nameOf = new Map(links.map(({ index, name }) => [index, name]));
  const all = routes
    .filter(({ table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN)
    .flatMap(route => {
      const { dst } = route;
      const devices = new Set(waysOf(route).map(({ oif }) => nameOf.get(oif) ?? ''));
      const origin = route.protocol === RTPROT_KERNEL ? { isOfAddress: true as const } : {};
      return [...devices].map(device => ({ dst, device, ...origin }));
    });
  return new HostRoutes(all);
}

/** Routing rules of type blackhole, unreachable or prohibit that come before the main table, for packets without a mark. */
export function earlyDrops(rules: readonly Rule[]): Rule[] {
  const mains = rules.filter(one => one.table === RT_TABLE_MAIN && !one.from && !one.to && !one.iif);
  return rules.filter(({ family, drops, priority, mark }) => {
    const main = mains.find(one => one.family === family);
    return drops !== undefined && mark === undefined && priority < (main?.priority ?? Infinity);
  });
}

/**
 * The bridges of that name and those with one of the ports.
 * @param names of devices that networks make or attachments are ports of
 */
export function bridgesIn({ byIndex }: HostDevices, names: ReadonlySet<string>): NodeBridge[] {
  const devices = [...byIndex.values()];
  return devices
    .filter(({ kind, name }) => kind === 'bridge' && names.has(name))
    .map(device => {
      const ports = devices.filter(({ master }) => master === device.name);
      return { device, ports: ports.map(({ name }) => name).sort() };
    });
}

export interface Inside {
  readonly device: NodeDevice;
  readonly routes: readonly NodeRoute[];
  /** Index of its other end, or of its lower device, on the host; undefined if that is elsewhere. */
  readonly hostIndex: number | undefined;
}

/**
 * Reads all interfaces of one namespace, with three tables.
 * @returns by name; undefined if the namespace is gone, may not be entered, or is the host's own
 */
export function readInside(path: string): ReadonlyMap<string, Inside> | undefined {
  const netns = findNetns(path);
  if (netns === undefined) return undefined;
  const host = ownNetns();
  try {
    if (sameNetns(netns, host)) return undefined;
    const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE, { isOfOthers: true }));
    try {
      return insideOf(new Tables((_, talk) => talk(socket)), netnsIdOf(socket, host.fd));
    } finally {
      socket.close();
    }
  } catch {
    return undefined;
  } finally {
    closeNetns(netns);
  }
}

/** Whether an interface exists, in a namespace or with an empty path on the host, where a bridge is not an attachment's. */
export function isThere(name: string, path: string): boolean {
  if (path !== '') return readInside(path)?.has(name) ?? false;
  return new Tables().links.some(link => link.name === name && link.kind !== 'bridge');
}

function insideOf(tables: Tables, hostId: number): ReadonlyMap<string, Inside> {
  const routes = tables.routes.filter(({ table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN);
  return new Map(
    tables.links.map(link => {
      const shown = routes.flatMap(route => {
        const own = waysOf(route).filter(({ oif }) => oif === link.index);
        return own.map(({ gateway }) => {
          return {
            destination: renderCidr(route.dst),
            ...defined({ gateway: gateway && renderIp(gateway) }),
          };
        });
      });
      const isOnHost = link.peer > 0 && link.attrs.linkNetnsId === hostId;
      const hostIndex = isOnHost ? link.peer : undefined;
      return [link.name, { device: toDevice(link, tables.links, tables), routes: shown, hostIndex }];
    }),
  );
}

/** A device with its addresses, except for those that are only valid on the link. */
function toDevice(
  { index, name, kind, mac, mtu, flags, master }: Link,
  links: readonly Pick<Link, 'index' | 'name'>[],
  { addresses }: Pick<Tables, 'addresses'>,
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
