// How do addresses, neighbours, forwarding entries and routes in the kernel differ from those planned?

import { type Cidr, FAMILIES, renderCidr, renderIp, sameIp } from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import {
  addAddressRequest,
  listAddresses,
  RT_SCOPE_UNIVERSE,
  removeAddressRequest,
} from '../netlink/rtnl/addr.ts';
import {
  listForwarding,
  listPermanentNeighboursOn,
  removeForwardingRequest,
  removeNeighbourRequest,
  setForwardingRequest,
  setNeighbourRequest,
} from '../netlink/rtnl/neighbour.ts';
import {
  listOriginRoutes,
  type OriginRoute,
  originRouteRequest,
  RT_TABLE_MAIN,
  removeOriginRouteRequest,
} from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { EXPORT_TABLE, LAST_METRIC, METRIC, PROTOCOL } from './names.ts';
import type { TunnelPlan, WaysPlan } from './plan.ts';

/** Requests that make the kernel's state the planned one: all of `add` before all of `remove`. */
export interface EntryChanges {
  readonly add: readonly Request[];
  readonly remove: readonly Request[];
}

/** What is missing, and what is too much: of the tunnels' own entries, and of routes with our protocol number in every table. */
export function entryChanges(
  socket: NetlinkSocket,
  plan: WaysPlan,
  indexOf: (tunnel: string) => number | undefined,
): EntryChanges {
  const parts = plan.tunnels.flatMap(tunnel => {
    const index = indexOf(tunnel.name);
    return index === undefined ? [] : tunnelChanges(socket, tunnel, index);
  });
  const routes = routeChanges(socket, wantedRoutes(plan, indexOf));
  return {
    add: [...parts.flatMap(({ add }) => add), ...routes.add],
    // Nothing may lead to a neighbour that is gone.
    remove: [...routes.remove, ...parts.flatMap(({ remove }) => remove)],
  };
}

/** Routes to other nodes in the main table; own blocks refuse what no pod has there, and are listed in the table for export. */
export function wantedRoutes(
  { ways, own }: Pick<WaysPlan, 'ways' | 'own'>,
  indexOf: (tunnel: string) => number | undefined,
): OriginRoute[] {
  const protocol = PROTOCOL;
  const main = { table: RT_TABLE_MAIN, protocol };
  return [
    ...ways.flatMap(({ dst, gateway, through }) => {
      const onlink = 'tunnel' in through && gateway.family === 4;
      const oif = 'tunnel' in through ? indexOf(through.tunnel) : through.index;
      return oif === undefined ? [] : { ...main, dst, priority: METRIC, via: { oif, gateway, onlink } };
    }),
    ...own.flatMap(dst => [
      { ...main, dst, priority: LAST_METRIC, via: undefined },
      { dst, table: EXPORT_TABLE, protocol, priority: METRIC, via: undefined },
    ]),
  ];
}

function tunnelChanges(socket: NetlinkSocket, plan: TunnelPlan, index: number): EntryChanges {
  const addresses = listAddresses(socket, index).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  const has = (cidrs: readonly Cidr[], cidr: Cidr) => cidrs.some(one => renderCidr(one) === renderCidr(cidr));
  const present = addresses.map(({ cidr }) => cidr);
  const neighbours = listPermanentNeighboursOn(socket, index).filter(isNeighbour);
  const macs = new Map(neighbours.map(({ ip, mac }) => [renderIp(ip), mac]));
  const known = new Set(plan.neighbours.map(({ ip }) => renderIp(ip)));
  const forwarding = listForwarding(socket, index);
  const wanted = new Map(plan.forwarding.map(({ mac, to }) => [mac, to]));
  const isThere = ({ mac, to }: TunnelPlan['forwarding'][number]) =>
    forwarding.some(one => one.mac === mac && sameIp(one.to, to));
  const isStale = ({ mac, to }: TunnelPlan['forwarding'][number]) => {
    const own = wanted.get(mac);
    return own === undefined || !sameIp(own, to);
  };
  // A hardware address leads to one node: replacing has moved the entry before the removal of the former one.
  const moved = new Set(plan.forwarding.filter(one => !isThere(one)).map(({ mac }) => mac));
  return {
    add: [
      ...plan.addresses
        .filter(cidr => !has(present, cidr))
        .map(cidr => addAddressRequest(index, cidr, { nodad: true })),
      ...plan.forwarding.filter(one => !isThere(one)).map(one => setForwardingRequest(index, one)),
      ...plan.neighbours
        .filter(({ ip, mac }) => macs.get(renderIp(ip)) !== mac)
        .map(({ ip, mac }) => setNeighbourRequest(index, ip, mac)),
    ],
    remove: [
      ...neighbours
        .filter(({ ip }) => !known.has(renderIp(ip)))
        .map(({ ip }) => removeNeighbourRequest(index, ip)),
      ...forwarding
        .filter(one => isStale(one) && !moved.has(one.mac))
        .map(one => removeForwardingRequest(index, one)),
      ...present.filter(cidr => !has(plan.addresses, cidr)).map(cidr => removeAddressRequest(index, cidr)),
    ],
  };
}

/** Those of multicast addresses are the kernel's own. */
function isNeighbour({ ip }: { readonly ip: Cidr['ip'] }): boolean {
  return ip.family === 4 ? ip.value >> 28n !== 0xen : ip.value >> 120n !== 0xffn;
}

function routeChanges(socket: NetlinkSocket, wanted: readonly OriginRoute[]): EntryChanges {
  const present = FAMILIES.flatMap(family => listOriginRoutes(socket, family, PROTOCOL));
  const byKey = new Map(present.map(route => [keyOf(route), route]));
  const keys = new Set(wanted.map(keyOf));
  return {
    add: wanted.flatMap(route => {
      const found = byKey.get(keyOf(route));
      if (found && isSame(route, found)) return [];
      return originRouteRequest(route, found !== undefined);
    }),
    // Besides those of other keys, one more of the same key, which another program has added.
    remove: present
      .filter(route => !keys.has(keyOf(route)) || byKey.get(keyOf(route)) !== route)
      .map(removeOriginRouteRequest),
  };
}

function keyOf({ dst, table, priority }: OriginRoute): string {
  return `${renderCidr(dst)} ${table} ${priority}`;
}

function isSame({ via }: OriginRoute, { via: other }: OriginRoute): boolean {
  if (via === undefined || other === undefined) return via === other;
  return via.oif === other.oif && sameIp(via.gateway, other.gateway) && via.onlink === other.onlink;
}
