// Which addresses and routes do both ends get, according to the IPAM plugin?
import type { PlannedRoute } from '../../src/attach/addressing.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { type Cidr, parseCidr, renderCidr, subnetOf } from '../../src/net/cidr.ts';
import { IP_BITS, type Ip, parseIp, sameIp } from '../../src/net/ip.ts';
import { RT_SCOPE_HOST, RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';

/** Index of the container's interface in the result; the host end comes first. */
export const CONTAINER_INTERFACE = 1;

/** What both ends are to look like on layer 3. */
export interface PtpPlan {
  /** Addresses of the container with their gateways. */
  readonly ips: readonly { readonly cidr: Cidr; readonly gateway: Ip }[];
  /** Each gateway is right behind the link. */
  readonly toGateways: readonly PlannedRoute[];
  /** Subnets of which the kernel believes that they are on the link; the neighbours are not. */
  readonly notOnLink: readonly PlannedRoute[];
  /** The same subnets by way of their gateway. */
  readonly toSubnets: readonly PlannedRoute[];
  /** IPAM's routes. */
  readonly routes: readonly PlannedRoute[];
  /** Addresses of the host end: the gateways, each alone in its subnet. */
  readonly hostAddresses: readonly Cidr[];
  /** The container's addresses as the host reaches them. */
  readonly hostRoutes: readonly PlannedRoute[];
}

/**
 * Derives everything from the IPAM plugin's result.
 * @throws CniError 7 when it gave no address, or one without a gateway
 */
export function planPtp(ipam: Result, type: string): PtpPlan {
  const ips = (ipam.ips ?? []).map(({ address, gateway }) => {
    if (gateway) return { cidr: parseCidr(address), gateway: parseIp(gateway) };
    throw refusal(`IPAM plugin "${type}" gave ${address} without a gateway, which the host end needs`);
  });
  if (ips.length === 0) throw refusal(`IPAM plugin "${type}" gave no address`);
  // A host address has no subnet, and the kernel makes no route for it.
  const inSubnets = ips.filter(({ cidr }) => cidr.prefix < IP_BITS[cidr.ip.family]);
  const toSubnets = once(
    inSubnets.map(({ cidr, gateway }) => ({ dst: subnetOf(cidr), gateway, source: cidr.ip })),
  );
  const routes = (ipam.routes ?? []).map(({ dst: text, gw, table, scope, priority, mtu, advmss }) => {
    const dst = parseCidr(text);
    const gateway = gw ? parseIp(gw) : ips.find(ip => ip.cidr.ip.family === dst.ip.family)?.gateway;
    return { dst, gateway, table, scope, priority, mtu, advmss };
  });
  return {
    ips,
    toGateways: once(
      ips.map(({ cidr, gateway }) => ({ dst: hostCidr(gateway), scope: RT_SCOPE_LINK, source: cidr.ip })),
    ),
    notOnLink: inSubnets.map(({ cidr }) => ({ dst: subnetOf(cidr), scope: RT_SCOPE_LINK })),
    toSubnets,
    routes: routes.filter(route => !toSubnets.some(own => isSame(own, route))),
    hostAddresses: once(ips.map(({ gateway }) => ({ dst: hostCidr(gateway) }))).map(({ dst }) => dst),
    hostRoutes: ips.map(({ cidr }) => ({ dst: hostCidr(cidr.ip), scope: RT_SCOPE_HOST })),
  };
}

/** The plan that an earlier ADD reported, for CHECK; what later links added to the result is none of ours. */
export function planFromResult(prevResult: Result, type: string): PtpPlan {
  const own = prevResult.interfaces?.findIndex(one => one.sandbox);
  const ips = (prevResult.ips ?? []).filter(ip => ip.interface === undefined || ip.interface === own);
  return planPtp({ ...prevResult, ips }, type);
}

function isSame(own: PlannedRoute, { dst, gateway, table, priority }: PlannedRoute): boolean {
  const sameWay = own.gateway && gateway && sameIp(own.gateway, gateway);
  return Boolean(sameWay) && renderCidr(own.dst) === renderCidr(subnetOf(dst)) && !table && !priority;
}

/** Two addresses of one subnet share its gateway. */
function once<T extends { readonly dst: Cidr }>(routes: readonly T[]): T[] {
  const byText = new Map<string, T>();
  for (const route of routes) {
    const text = renderCidr(route.dst);
    if (!byText.has(text)) byText.set(text, route);
  }
  return [...byText.values()];
}

function hostCidr(ip: Ip): Cidr {
  return { ip, prefix: IP_BITS[ip.family] };
}

function refusal(why: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot attach container: ${why}`);
}
