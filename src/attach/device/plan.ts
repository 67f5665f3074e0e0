// Which addresses and routes does the container's device get, according to the IPAM plugin?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { Result } from '../../cni/result.ts';
import { parseCidr } from '../../net/cidr.ts';
import { parseIp } from '../../net/ip.ts';
import { type ContainerAddressing, planRoute } from '../addressing.ts';

/**
 * Derives the addressing of a device from the IPAM plugin's result. A route without a gateway uses the gateway of its family.
 * @param type of the IPAM plugin, for the error
 * @throws CniError 7 when there is no address, Error for text that is not one
 */
export function planAddresses(ipam: Result, type: string | undefined): ContainerAddressing {
  const ips = (ipam.ips ?? []).map(({ address, gateway }) => ({
    cidr: parseCidr(address),
    gateway: gateway ? parseIp(gateway) : undefined,
  }));
  if (ips.length > 0) return { ips, routes: (ipam.routes ?? []).map(route => planRoute(route, ips)) };
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach container: IPAM plugin "${type}" returned no address`,
  );
}

/**
 * The addressing that an earlier ADD reported for an interface, for CHECK; undefined when it has no addresses. What other plugins
 * of the chain obtained for other interfaces is left out.
 */
export function addressesFromResult(
  prevResult: Result,
  ifname: string,
  netns: string,
): ContainerAddressing | undefined {
  const own = prevResult.interfaces?.findIndex(one => one.name === ifname && one.sandbox === netns);
  const ips = (prevResult.ips ?? []).filter(ip => ip.interface === undefined || ip.interface === own);
  return ips.length ? planAddresses({ ...prevResult, ips }, undefined) : undefined;
}
