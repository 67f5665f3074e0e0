// What does ADD report about an attachment?

import type { Layer3 } from '../../src/attach/device/plan.ts';
import { describeInterface, onlyInterfaceHas } from '../../src/attach/device/report.ts';
import { dnsOf } from '../../src/attach/ipam.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { HostDeviceConf } from './config.ts';

/** The result for a device that was moved: its interface, and the addresses and routes that it got. */
export function renderDevice(
  call: Call<HostDeviceConf>,
  link: Link,
  ipam: Result | undefined,
  { ips = [], routes = [] }: Layer3,
): Result {
  const pciID = atLeast(call.version, '1.1.0') ? pciAddressOf(link) : undefined;
  return {
    ...ipam,
    interfaces: [{ ...describeInterface(call, link), ...defined({ pciID }) }],
    ...(ips.length ? { ips: onlyInterfaceHas(ips) } : {}),
    ...(routes.length ? { routes } : {}),
    ...defined({ dns: dnsOf(call.conf, ipam) }),
  };
}

/** Undefined for a device that is on no PCI bus. */
export function pciAddressOf({ attrs: { parentDevBusName, parentDevName } }: Link): string | undefined {
  return parentDevBusName === 'pci' ? parentDevName : undefined;
}

/** The result for a PCI device that a program in user space drives: IPAM's addresses are for that program. */
export function renderUserspace(
  { conf, env, version }: Call<HostDeviceConf>,
  pciID: string,
  ipam: Result | undefined,
): Result {
  return {
    ...ipam,
    interfaces: [{ name: env.ifname, sandbox: env.netns, ...(atLeast(version, '1.1.0') ? { pciID } : {}) }],
    ...(ipam?.ips ? { ips: onlyInterfaceHas(ipam.ips) } : {}),
    ...defined({ dns: dnsOf(conf, ipam) }),
  };
}
