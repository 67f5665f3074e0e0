// Which addresses, routes and rules does the container get: those of IPAM, those that the device had on the host, or both?
import type { Layer3 } from '../../src/attach/device/plan.ts';
import type { ResultRoute } from '../../src/cni/result.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import { RT_TABLE_MAIN } from '../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../src/netlink/rtnl/rule.ts';
import type { DeviceRecord, RecordedRoute, RecordedRule } from './record.ts';

/** linux/rtnetlink.h */
const RT_TABLE_DEFAULT = 253;
const RT_TABLE_LOCAL = 255;

/** The network that a device had on the host, as a result: without gateways, because its routes name them. */
export function networkOf({ addresses, routes }: Pick<DeviceRecord, 'addresses' | 'routes'>): Layer3 {
  return {
    ips: addresses.filter(({ scope }) => scope === RT_SCOPE_UNIVERSE).map(({ address }) => ({ address })),
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
export function rulesFor(routes: readonly RecordedRoute[], rules: readonly Rule[]): RecordedRule[] {
  const own = new Set(routes.map(({ table }) => table));
  for (const table of [RT_TABLE_MAIN, RT_TABLE_DEFAULT, RT_TABLE_LOCAL]) own.delete(table);
  return rules.flatMap(({ from, to, iif, oif, mark, table, priority }) => {
    const isPlain = to === undefined && iif === undefined && oif === undefined && !mark;
    return from && isPlain && own.has(table) ? [{ from: renderCidr(from), table, priority }] : [];
  });
}

function renderRoute({ dst, gateway, table, scope, priority, mtu, advmss }: RecordedRoute): ResultRoute {
  return {
    dst,
    ...(gateway === undefined ? {} : { gw: gateway }),
    ...(table === RT_TABLE_MAIN ? {} : { table }),
    ...(scope === RT_SCOPE_UNIVERSE ? {} : { scope }),
    ...(priority ? { priority } : {}),
    ...(mtu ? { mtu } : {}),
    ...(advmss ? { advmss } : {}),
  };
}
