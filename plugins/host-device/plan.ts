// Which addresses, routes and rules does the container get: those of IPAM, those that the device had on the host, or both?
import type { Layer3 } from '../../src/attach/device/plan.ts';
import type { ResultRoute } from '../../src/cni/result.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import { type Address, RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import { type Route, RT_TABLE_MAIN, routeThrough } from '../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../src/netlink/rtnl/rule.ts';
import { addressesOf, routesOf } from './capture.ts';
import type { DeviceRecord, RecordedRule } from './record.ts';

/** linux/rtnetlink.h */
const RT_TABLE_DEFAULT = 253;
const RT_TABLE_LOCAL = 255;

/** The addresses and routes that a device had on the host, for the index that it has in the container. */
export interface OwnNetwork {
  readonly addresses: readonly Address[];
  readonly routes: readonly Route[];
}

/** Reads it from the record; a container has no other device that a route of several next hops could use. */
export function ownNetwork(record: DeviceRecord, index: number): OwnNetwork {
  return {
    addresses: addressesOf(record, index),
    routes: routesOf(record, index).flatMap(route => routeThrough(route, index) ?? []),
  };
}

/** The same as a result: without gateways, because its routes name them. */
export function networkOf({ addresses, routes }: OwnNetwork): Layer3 {
  return {
    ips: addresses
      .filter(({ scope }) => scope === RT_SCOPE_UNIVERSE)
      .map(({ cidr }) => ({ address: renderCidr(cidr) })),
    routes: routes.map(renderRoute),
  };
}

/** The device's own network, then that of IPAM; what both have counts once. */
export function mergeNetworks(own: Layer3 | undefined, ipam: Layer3 | undefined): Layer3 {
  const [first, second] = [own ?? {}, ipam ?? {}];
  const known = new Set((second.ips ?? []).map(({ address }) => address));
  return {
    ips: [...(first.ips ?? []).filter(({ address }) => !known.has(address)), ...(second.ips ?? [])],
    routes: [...(first.routes ?? []), ...(second.routes ?? [])],
  };
}

/** The source rules of the host that lead to tables with routes through the device, apart from the kernel's own tables. */
export function rulesFor(routes: readonly Pick<Route, 'table'>[], rules: readonly Rule[]): RecordedRule[] {
  const own = new Set(routes.map(({ table = RT_TABLE_MAIN }) => table));
  for (const table of [RT_TABLE_MAIN, RT_TABLE_DEFAULT, RT_TABLE_LOCAL]) own.delete(table);
  return rules.flatMap(({ from, to, iif, oif, mark, table, priority }) => {
    const isPlain = to === undefined && iif === undefined && oif === undefined && !mark;
    return from && isPlain && own.has(table) ? [{ from: renderCidr(from), table, priority }] : [];
  });
}

function renderRoute({ dst, gateway, ways, table, scope, priority, mtu, advmss }: Route): ResultRoute {
  const gw = gateway ?? ways?.[0]?.gateway;
  return {
    dst: renderCidr(dst),
    ...(gw === undefined ? {} : { gw: renderIp(gw) }),
    ...(table && table !== RT_TABLE_MAIN ? { table } : {}),
    ...(scope ? { scope } : {}),
    ...(priority ? { priority } : {}),
    ...(mtu ? { mtu } : {}),
    ...(advmss ? { advmss } : {}),
  };
}
