// Which addresses, routes and rules does the container get: those of IPAM, those that the device had on the host, or both?
import { type PlannedIp, type PlannedRoute, planRoute } from '../../src/attach/addressing.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result, ResultRoute } from '../../src/cni/result.ts';
import { parseCidr, renderCidr } from '../../src/net/cidr.ts';
import { parseIp } from '../../src/net/ip.ts';
import { RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import { RT_TABLE_MAIN } from '../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../src/netlink/rtnl/rule.ts';
import type { DeviceRecord, RecordedRoute, RecordedRule } from './record.ts';

/** linux/rtnetlink.h */
const RT_TABLE_DEFAULT = 253;
const RT_TABLE_LOCAL = 255;

/** What the interface of the container gets. */
export interface DevicePlan {
  readonly ips: readonly PlannedIp[];
  readonly routes: readonly PlannedRoute[];
}

/** The part of a result that IPAM and the device's own network contribute to. */
export type Addressing = Pick<Result, 'ips' | 'routes'>;

/** The network that a device had on the host, as a result: without gateways, because its routes name them. */
export function networkOf({ addresses, routes }: Pick<DeviceRecord, 'addresses' | 'routes'>): Addressing {
  return {
    ips: addresses.filter(({ scope }) => scope === RT_SCOPE_UNIVERSE).map(({ address }) => ({ address })),
    routes: routes.map(renderRoute),
  };
}

/** The device's own network, then that of IPAM; what both have counts once. */
export function mergeNetworks(own: Addressing | undefined, ipam: Addressing | undefined): Addressing {
  const [first, second] = [own ?? {}, ipam ?? {}];
  const known = new Set((second.ips ?? []).map(({ address }) => address));
  return {
    ips: [...(first.ips ?? []).filter(({ address }) => !known.has(address)), ...(second.ips ?? [])],
    routes: [...(first.routes ?? []), ...(second.routes ?? [])],
  };
}

/**
 * Derives the plan from IPAM's result, a merged one, or that of an earlier ADD.
 * @throws CniError 7 when a value cannot be read
 */
export function planDevice({ ips: listed = [], routes = [] }: Addressing): DevicePlan {
  try {
    const ips = listed.map(({ address, gateway }) => ({
      cidr: parseCidr(address),
      gateway: gateway ? parseIp(gateway) : undefined,
    }));
    return { ips, routes: routes.map(route => planRoute(route, ips)) };
  } catch (cause) {
    throw new CniError(ErrorCode.invalidConfig, `Cannot use addresses: ${(cause as Error).message}`, {
      cause,
    });
  }
}

/** What ADD reported for its interface, for CHECK; what later plugins added for others is ignored. */
export function planFromResult({ interfaces = [], ips = [], routes }: Result, ifname: string): DevicePlan {
  const own = interfaces.findIndex(one => one.name === ifname && one.sandbox);
  const mine = ips.filter(ip => ip.interface === undefined || ip.interface === own);
  return planDevice({ ips: mine, ...(routes ? { routes } : {}) });
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
