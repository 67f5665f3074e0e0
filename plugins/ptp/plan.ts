// Which addresses and routes do both ends get, according to the IPAM plugin?
import {
  holdingsOf,
  type PlannedRoute,
  refuseMixedFamilies,
  refuseUnusable,
} from '../../src/attach/addressing.ts';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { type Result, spreadGateways } from '../../src/cni/result.ts';
import {
  type Cidr,
  hostCidr,
  IP_BITS,
  type Ip,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
  subnetOf,
} from '../../src/net/ip.ts';
import { RT_SCOPE_HOST, RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';
import type { Call } from '../../src/plugin/define.ts';

/** Index of the container's interface in the result; the host end comes first. */
export const CONTAINER_INTERFACE = 1;

/** The layer 3 configuration of both ends. */
export interface PtpPlan {
  /** Addresses of the container with their gateways. */
  readonly ips: readonly { readonly cidr: Cidr; readonly gateway: Ip }[];
  /** Routes to the gateways, which are on-link. */
  readonly toGateways: readonly PlannedRoute[];
  /** On-link routes that the kernel adds for the subnets, although the neighbours are not on the link. */
  readonly notOnLink: readonly PlannedRoute[];
  /** Routes to the same subnets through their gateway. */
  readonly toSubnets: readonly PlannedRoute[];
  /** IPAM's routes. */
  readonly routes: readonly PlannedRoute[];
  /** Addresses of the host end: the gateways, each with a full-length prefix. */
  readonly hostAddresses: readonly Cidr[];
  /** The host's routes to the container's addresses. */
  readonly hostRoutes: readonly PlannedRoute[];
}

/**
 * Derives everything from the IPAM plugin's result.
 * @throws CniError 7 when it gave no address, or one without a gateway
 */
export function planPtp(ipam: Result, type: string): PtpPlan {
  const ips = (ipam.ips ?? []).map(({ address, gateway }) => {
    if (gateway) return { cidr: parseCidr(address), gateway: parseIp(gateway) };
    throw refusal(
      `IPAM plugin "${type}" returned ${address} without a gateway, which the host end needs; set "gateway" in "ipam"`,
    );
  });
  if (ips.length === 0) throw refusal(`IPAM plugin "${type}" returned no address`);
  // An address with a full-length prefix has no subnet, and the kernel adds no route for it.
  const inSubnets = ips.filter(({ cidr }) => cidr.prefix < IP_BITS[cidr.ip.family]);
  const toSubnets = once(
    inSubnets.map(({ cidr, gateway }) => ({ dst: subnetOf(cidr), gateway, source: cidr.ip })),
  );
  const routes = spreadGateways(ipam.routes ?? []).map(
    ({ dst: text, gw, table, scope, priority, mtu, advmss }) => {
      const dst = parseCidr(text);
      const gateway = gw ? parseIp(gw) : ips.find(ip => ip.cidr.ip.family === dst.ip.family)?.gateway;
      return { dst, gateway, table, scope, priority, mtu, advmss };
    },
  );
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

/**
 * Rejects addresses that the container itself introduces. The host gets a route to each address, and each gateway as an address
 * of its own: if a pod could request a resolver's address, the node's traffic to that resolver would go to the pod.
 * @throws CniError 7 for a requested address that is in no subnet of the configuration, one that no container can have, and a gateway of
 * another family
 */
export function refuseBrought(call: Pick<Call, 'request' | 'env'>, { ips }: Pick<PtpPlan, 'ips'>): void {
  refuseMixedFamilies(ips);
  refuseUnusable(ips);
  const { holds, isAsked } = holdingsOf(call);
  const brought = ips
    .flatMap(({ cidr, gateway }) => [cidr.ip, gateway])
    .find(ip => isAsked(ip) && !holds(hostCidr(ip)));
  if (brought === undefined) return;
  throw refusal(
    `${renderIp(brought)} was requested for it, but is in no subnet of the configuration, and the host would get a route to it; ` +
      'add the subnet to "ipam" of the network',
  );
}

/** The plan that an earlier ADD reported, for CHECK; what later plugins added to the result is ignored. */
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

function refusal(why: string): CniError {
  return invalidConfig(`Cannot attach container: ${why}`);
}
