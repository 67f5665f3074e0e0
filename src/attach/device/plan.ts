// Which addresses and routes does a result assign to the container's device, when there is nothing on the host beside it?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { Result } from '../../cni/result.ts';
import { spreadGateways } from '../../cni/routes.ts';
import { parseCidr } from '../../net/cidr.ts';
import { parseIp } from '../../net/ip.ts';
import { type ContainerAddressing, planRoute } from '../addressing.ts';

/** The part of a result that says how a device is addressed. */
export type Layer3 = Pick<Result, 'ips' | 'routes'>;

/**
 * Derives the addressing of a device, which may be empty. A route without a gateway uses the gateway of its family.
 * @throws CniError 7 for text that is no address
 */
export function planLayer3({ ips: listed = [], routes = [] }: Layer3): ContainerAddressing {
  try {
    const ips = listed.map(({ address, gateway }) => ({
      cidr: parseCidr(address),
      gateway: gateway ? parseIp(gateway) : undefined,
    }));
    return { ips, routes: spreadGateways(routes).map(route => planRoute(route, ips)) };
  } catch (cause) {
    throw new CniError(ErrorCode.invalidConfig, `Cannot use addresses: ${(cause as Error).message}`, {
      cause,
    });
  }
}

/**
 * The same from the IPAM plugin's result, which must hold an address.
 * @param type of the IPAM plugin, for the error
 * @throws CniError 7 when there is no address, or text that is not one
 */
export function planAddresses(ipam: Result, type: string | undefined): ContainerAddressing {
  const addressing = planLayer3(ipam);
  if (addressing.ips.length > 0) return addressing;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach container: IPAM plugin "${type}" returned no address; remove "ipam" for a device without addresses`,
  );
}

/**
 * The addressing that an earlier ADD reported for an interface, for CHECK; empty when it has no addresses. What other plugins
 * of the chain obtained for other interfaces is left out.
 */
export function addressesFromResult(
  { interfaces, ips = [], routes = [] }: Result,
  ifname: string,
  netns: string,
): ContainerAddressing {
  const own = interfaces?.findIndex(one => one.name === ifname && one.sandbox === netns);
  const mine = ips.filter(ip => ip.interface === undefined || ip.interface === own);
  return mine.length ? planLayer3({ ips: mine, routes }) : { ips: [], routes: [] };
}
