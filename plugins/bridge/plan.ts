// Which addresses, gateways and routes follow from the configuration and the IPAM result?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result, ResultRoute } from '../../src/cni/result.ts';
import { type Cidr, cidrContains, networkOf, parseCidr } from '../../src/net/cidr.ts';
import { type Ip, offsetIp, parseIp, renderIp } from '../../src/net/ip.ts';
import type { Route } from '../../src/netlink/rtnl/route.ts';
import type { BridgeConf } from './config.ts';

/** Index of the container's interface in the result; bridge and host end of the veth pair come first. */
export const CONTAINER_INTERFACE = 2;

/** What an attachment is to look like on layer 3. */
export interface Addressing {
  /** Addresses of the container's interface with their gateways. */
  readonly ips: readonly { readonly cidr: Cidr; readonly gateway: Ip | undefined }[];
  /** Addresses that the bridge answers for, with the containers' prefix length. */
  readonly gateways: readonly Cidr[];
  /** Routes of the container; the outgoing interface is its own. */
  readonly routes: readonly Omit<Route, 'oif'>[];
  /** The same for the result: as IPAM gave them, then the default routes that we add. */
  readonly resultRoutes: readonly ResultRoute[];
}

/**
 * Derives the addressing of an attachment. A gateway that IPAM left out is the first address of the subnet, a default
 * route is added once per family, and a route without gateway goes through the family's.
 * @throws CniError when IPAM gave no address, or text that is none
 */
export function planAddressing(conf: BridgeConf, ipam: Result): Addressing {
  const wantsGateway = conf.isGateway || conf.isDefaultGateway;
  const ips = (ipam.ips ?? []).map(({ address, gateway }) => {
    const cidr = parseCidr(address);
    const own = gateway ? parseIp(gateway) : undefined;
    return { cidr, gateway: own ?? (wantsGateway ? offsetIp(networkOf(cidr), 1n) : undefined) };
  });
  if (ips.length === 0) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot attach container: IPAM plugin "${conf.ipam?.type}" gave no address`,
    );
  }
  const resultRoutes = conf.isDefaultGateway
    ? withDefaultRoutes(ipam.routes ?? [], ips)
    : (ipam.routes ?? []);
  return {
    ips,
    gateways: wantsGateway ? gatewaysOf(ips) : [],
    routes: resultRoutes.map(route => planRoute(route, ips)),
    resultRoutes,
  };
}

/** The addressing that an earlier ADD reported, for CHECK and DEL. */
export function addressingOf(conf: BridgeConf, prevResult: Result): Addressing {
  const own = prevResult.interfaces?.findIndex(one => one.sandbox);
  const ips = (prevResult.ips ?? []).filter(ip => ip.interface === undefined || ip.interface === own);
  return planAddressing(
    { ...conf, isDefaultGateway: false, isGateway: conf.isGateway || conf.isDefaultGateway },
    { ...prevResult, ips },
  );
}

type PlannedIp = Addressing['ips'][number];

/**
 * A default route for each family that has a gateway. One that IPAM gave without a gateway is completed rather than
 * doubled: the reference installs both and fails with EEXIST.
 */
function withDefaultRoutes(routes: readonly ResultRoute[], ips: readonly PlannedIp[]): ResultRoute[] {
  const completed = routes.map(route => ({ ...route }));
  for (const family of [4, 6] as const) {
    const gateway = firstGateway(ips, family);
    if (gateway === undefined) continue;
    const dst = family === 4 ? '0.0.0.0/0' : '::/0';
    const existing = completed.find(route => isDefault(route, family));
    if (existing === undefined) completed.push({ dst, gw: renderIp(gateway) });
    else existing.gw ??= renderIp(gateway);
  }
  return completed;
}

function isDefault(route: ResultRoute, family: 4 | 6): boolean {
  const { ip, prefix } = parseCidr(route.dst);
  return prefix === 0 && ip.family === family && (route.table === undefined || route.table === 254);
}

function gatewaysOf(ips: readonly PlannedIp[]): Cidr[] {
  const gateways: Cidr[] = [];
  for (const { cidr, gateway } of ips) {
    if (gateway === undefined) continue;
    const known = gateways.some(({ ip, prefix }) => prefix === cidr.prefix && ip.value === gateway.value);
    if (!known) gateways.push({ ip: gateway, prefix: cidr.prefix });
  }
  return gateways;
}

function planRoute(route: ResultRoute, ips: readonly PlannedIp[]): Omit<Route, 'oif'> {
  const dst = parseCidr(route.dst);
  // A destination inside an own subnet needs no gateway unless one is given.
  const onLink = ips.some(({ cidr }) => dst.prefix >= cidr.prefix && cidrContains(cidr, networkOf(dst)));
  const gateway = route.gw ? parseIp(route.gw) : onLink ? undefined : firstGateway(ips, dst.ip.family);
  const { table, scope, priority, mtu, advmss } = route;
  return { dst, gateway, table, scope, priority, mtu, advmss };
}

function firstGateway(ips: readonly PlannedIp[], family: 4 | 6): Ip | undefined {
  return ips.find(({ cidr, gateway }) => gateway !== undefined && cidr.ip.family === family)?.gateway;
}
