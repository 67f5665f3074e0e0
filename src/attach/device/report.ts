// What does ADD report about a device of the container?
import { defined } from '../../cni/defined.ts';
import type { PluginConfig } from '../../cni/plugin-config.ts';
import type { Result, ResultInterface } from '../../cni/result.ts';
import { atLeast } from '../../cni/version.ts';
import { renderCidr } from '../../net/cidr.ts';
import { renderIp } from '../../net/ip.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import type { Call } from '../../plugin/define.ts';
import { dnsOf } from '../ipam.ts';
import type { Addressed } from './address.ts';

/**
 * The result: interfaces and addresses of the plugins before, then the device, its addresses, and the rest of the IPAM result.
 * @param before the result of the plugin before; undefined for the first of a chain
 */
export function renderDevice(
  call: Call<PluginConfig>,
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
  const dns = dnsOf(call.conf, ipam ?? before);
  return {
    ...before,
    ...ipam,
    interfaces: [...interfaces, describeInterface(call, link)],
    ...defined({ ips }),
    ...(routes.length ? { routes } : {}),
    ...defined({ dns }),
  };
}

/** A result's entry for the container's interface. The key `mtu` exists since 1.1.0. */
export function describeInterface(
  { env, version }: Pick<Call, 'env' | 'version'>,
  { mac, mtu }: Pick<Link, 'mac' | 'mtu'>,
): ResultInterface {
  return {
    name: env.ifname,
    mac: mac ?? '',
    sandbox: env.netns,
    ...(atLeast(version, '1.1.0') ? { mtu } : {}),
  };
}

/** The addresses of a result whose only interface is the container's. */
export function onlyInterfaceHas(ips: NonNullable<Result['ips']>): NonNullable<Result['ips']> {
  return ips.map(ip => ({ ...ip, interface: 0 }));
}
