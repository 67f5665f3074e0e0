// Which result follows from addresses and routers?
import type { Result } from '../../../src/cni/result.ts';
import { atLeast, type SpecVersion } from '../../../src/cni/version.ts';
import { type Cidr, cidrContains, renderCidr } from '../../../src/net/cidr.ts';
import { type Ip, renderIp } from '../../../src/net/ip.ts';
import { dnsOf } from '../plan.ts';
import type { Resolvers } from './client/information.ts';
import type { Advertisement } from './codec/advertisement.ts';

/** linux/ipv6_route.h, IP6_RT_PRIO_USER: the metric of default routes that the kernel learns. */
const LEARNED = 1024;
const HOST_PREFIX = 128;
const PRIORITY_SINCE = '1.1.0';

/** What the result is made of. */
export interface Findings {
  readonly addresses: readonly Cidr[];
  readonly routers: readonly Advertisement[];
  readonly resolvers: Resolvers;
  readonly priority: number | undefined;
  /** Of the result. */
  readonly version: SpecVersion;
}

/**
 * The IPAM result. Its default route comes after the one that the kernel learns: the plugin that called takes the interface down to
 * address it, and until the next advertisement there would be none. With the same metric, the kernel could not add its own, and would
 * leave the rest of the advertisement unread; so results that cannot state a metric have no default route.
 */
export function resultOf({ addresses, routers, resolvers, priority, version }: Findings): Result {
  const router = routers.find(({ isDefault }) => isDefault)?.router;
  const gateway = router && renderIp(router);
  const dns = dnsOf({ domain: undefined, ...resolvers });
  return {
    ips: addresses.map(cidr => ({ address: renderCidr(cidr), ...(gateway ? { gateway } : {}) })),
    routes:
      gateway && atLeast(version, PRIORITY_SINCE)
        ? [{ dst: '::/0', gw: gateway, priority: (priority || LEARNED) + 1 }]
        : [],
    ...(dns ? { dns } : {}),
  };
}

/** The resolvers that routers name. */
export function advertisedResolvers(routers: readonly Advertisement[]): Resolvers {
  const nameservers = routers.flatMap(one => one.nameservers.map(renderIp));
  return { nameservers: [...new Set(nameservers)], search: [...new Set(routers.flatMap(one => one.search))] };
}

/** The prefix length of a leased address: that of the prefix that routers say is on the link, or of the address alone. */
export function prefixFor(ip: Ip, routers: readonly Advertisement[]): number {
  const onLink = routers.flatMap(({ prefixes }) =>
    prefixes.filter(one => one.onLink && cidrContains(one.cidr, ip)),
  );
  return Math.max(0, ...onLink.map(({ cidr }) => cidr.prefix)) || HOST_PREFIX;
}
