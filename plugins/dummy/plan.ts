// Which addresses and routes does the device get, according to the IPAM plugin?
import { type ContainerAddressing, planRoute } from '../../src/attach/addressing.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { spreadGateways } from '../../src/cni/routes.ts';
import { parseCidr } from '../../src/net/cidr.ts';
import { parseIp } from '../../src/net/ip.ts';

/** Index of the device in the result. */
export const CONTAINER_INTERFACE = 0;

/**
 * Derives addresses and routes from the IPAM plugin's result.
 * @param type the IPAM plugin, for the message
 * @throws CniError 7 when it gave no address, or text that is not one
 */
export function planDummy(ipam: Result, type: string | undefined): ContainerAddressing {
  const ips = (ipam.ips ?? []).map(({ address, gateway }) => ({
    cidr: parseCidr(address),
    gateway: gateway ? parseIp(gateway) : undefined,
  }));
  if (ips.length > 0)
    return { ips, routes: spreadGateways(ipam.routes ?? []).map(route => planRoute(route, ips)) };
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach container: IPAM plugin "${type}" returned no address; remove "ipam" for a device without addresses`,
  );
}

/** The plan that an earlier ADD reported, for CHECK; addresses of other interfaces are ignored. */
export function planFromResult(prevResult: Result, ifname: string, type: string): ContainerAddressing {
  const own = prevResult.interfaces?.findIndex(one => one.name === ifname && one.sandbox);
  const ips = (prevResult.ips ?? []).filter(ip => ip.interface === undefined || ip.interface === own);
  return planDummy({ ...prevResult, ips }, type);
}
