// Which addresses and routes does a result assign to the container's one interface, when there is nothing on the host beside it?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { Result } from '../cni/result.ts';
import { parseCidr } from '../net/cidr.ts';
import { parseIp } from '../net/ip.ts';
import { type ContainerAddressing, planRoute } from './addressing.ts';

/** The part of a result that says how the interface is addressed. */
export type Layer3 = Pick<Result, 'ips' | 'routes'>;

/**
 * Reads the result of an IPAM plugin.
 * @throws CniError 7 when a value cannot be read
 */
export function planLayer3({ ips: listed = [], routes = [] }: Layer3): ContainerAddressing {
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

/** Reads what ADD reported, for CHECK; the addresses that later plugins added for other interfaces are ignored. */
export function layer3FromResult(
  { interfaces = [], ips = [], routes }: Result,
  ifname: string,
): ContainerAddressing {
  const own = interfaces.findIndex(one => one.name === ifname && one.sandbox);
  const mine = ips.filter(ip => ip.interface === undefined || ip.interface === own);
  return planLayer3({ ips: mine, ...(routes ? { routes } : {}) });
}
