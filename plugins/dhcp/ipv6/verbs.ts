// What does dhcp do for IPv6, for each verb?
import type { Result } from '../../../src/cni/result.ts';
import type { Link } from '../../../src/netlink/rtnl/link.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { DEFAULT_TIMEOUT_S, type DhcpConf } from '../config.ts';
import { collectLeases, type Release, returnLease } from '../give-back.ts';
import { release } from './client/acquire.ts';
import { withClient } from './client/session.ts';
import { obtainFormed } from './formed.ts';
import { IPV6_LEASES, identityIn, type LeaseState } from './kept.ts';
import { obtainLease } from './obtain.ts';
import { watchRouters } from './routers.ts';
import { acceptAdvertisements } from './settings.ts';

export { checkIpv6 } from './check.ts';
export { keepIpv6 } from './upkeep.ts';

/** The link-local address of an interface that was down is there after two seconds. */
const RELEASE_MS = 3_000;

/** What is left to do on an interface that is up. */
export interface Ipv6Search {
  obtain(): Promise<Result>;
  close(): void;
}

/**
 * Prepares the interface, before it comes up.
 * @returns a function that begins to listen to routers, to be called as soon as it is up: the kernel asks them then, and they need not
 * answer twice
 */
export function startIpv6(call: Call, conf: DhcpConf, link: Link): () => Ipv6Search {
  const { ipv6: way, priority, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const giveUpAt = performance.now() + timeout * 1000;
  acceptAdvertisements(call, link.name, { autoconf: way !== 'dhcp', priority });
  return () => {
    const place = { netns: call.containerNetns, link, socket: call.container };
    const routers = watchRouters(place);
    const obtain = way === 'dhcp' ? obtainLease : obtainFormed;
    return { obtain: () => obtain(call, conf, { place, routers, giveUpAt }), close: routers.close };
  };
}

/** DEL. */
export function returnIpv6(call: Call): Promise<void> {
  return returnLease(call, IPV6_LEASES, releaseFor(call));
}

/** GC. */
export function collectIpv6(call: Call): Promise<void> {
  return collectLeases(call, IPV6_LEASES, releaseFor(call));
}

function releaseFor(call: Call): Release<LeaseState> {
  return async (place, state) => {
    const { lease } = state;
    const isHeard = await withClient(place, identityIn(state), performance.now() + RELEASE_MS, client =>
      release(client, lease),
    );
    if (!isHeard)
      call.log.info(
        `The server did not acknowledge the release of ${lease.address}; it may keep the address`,
      );
  };
}
