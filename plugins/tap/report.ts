// What does ADD report about an attachment?
import { describeInterface, onlyInterfaceHas } from '../../src/attach/device/report.ts';
import { dnsOf } from '../../src/attach/ipam.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { readTapNode } from '../../src/sys/sysfs.ts';
import { isMacvtap, type TapConf } from './config.ts';

/** The result: one interface, and IPAM's addresses and routes. */
export function renderTap(call: Call<TapConf>, link: Link, ipam: Result | undefined): Result {
  const deviceNode = isMacvtap(call.conf) ? readNode(call) : undefined;
  return {
    ...ipam,
    interfaces: [{ ...describeInterface(call, link), ...defined({ deviceNode }) }],
    ...(ipam?.ips ? { ips: onlyInterfaceHas(ipam.ips) } : {}),
    ...defined({ dns: dnsOf(call.conf, ipam) }),
  };
}

/** The runtime, or its hook, makes a device node with this number in the container. */
function readNode({ containerNetns, env }: Call): string {
  return inNetns(containerNetns, () => readTapNode(env.ifname));
}
