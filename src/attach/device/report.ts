// What does ADD report about a device of the container?
import { defined } from '../../cni/defined.ts';
import type { PluginConfig } from '../../cni/plugin-config.ts';
import type { Result } from '../../cni/result.ts';
import { atLeast } from '../../cni/version.ts';
import { renderCidr } from '../../net/cidr.ts';
import { renderIp } from '../../net/ip.ts';
import type { Call } from '../../plugin/define.ts';
import { dnsOf } from '../ipam.ts';
import type { Addressed } from './address.ts';

/**
 * The result: interfaces and addresses of the plugins before, then the device, its addresses, and the rest of the IPAM result.
 * @param before the result of the plugin before; undefined for the first of a chain
 */
export function renderDevice(
  { conf, env, version }: Call<PluginConfig>,
  { link, ipam, addressing }: Addressed,
  before?: Result,
): Result {
  const interfaces = before?.interfaces ?? [];
  const own = addressing?.ips.map(({ cidr, gateway }) => ({
    address: renderCidr(cidr),
    ...(gateway ? { gateway: renderIp(gateway) } : {}),
    interface: interfaces.length,
  }));
  const ips = before?.ips || own ? [...(before?.ips ?? []), ...(own ?? [])] : undefined;
  const routes = [...(before?.routes ?? []), ...(ipam?.routes ?? [])];
  const dns = dnsOf(conf, ipam ?? before);
  return {
    ...before,
    ...ipam,
    interfaces: [
      ...interfaces,
      {
        name: link.name,
        mac: link.mac ?? '',
        sandbox: env.netns,
        ...(atLeast(version, '1.1.0') ? { mtu: link.mtu } : {}),
      },
    ],
    ...defined({ ips }),
    ...(routes.length ? { routes } : {}),
    ...defined({ dns }),
  };
}
