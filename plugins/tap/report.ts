// What does ADD report about an attachment?
import { dnsOf } from '../../src/attach/ipam.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { readTapNode } from '../../src/sys/sysfs.ts';
import { isMacvtap, type TapConf } from './config.ts';

/** The result: one interface, and IPAM's addresses and routes. */
export function renderTap(call: Call<TapConf>, { mac, mtu }: Link, ipam: Result | undefined): Result {
  const { conf, env, version } = call;
  const deviceNode = isMacvtap(conf) ? readNode(call) : undefined;
  return {
    ...ipam,
    interfaces: [
      {
        name: env.ifname,
        mac: mac ?? '',
        sandbox: env.netns,
        ...(atLeast(version, '1.1.0') ? { mtu } : {}),
        ...defined({ deviceNode }),
      },
    ],
    ...(ipam?.ips ? { ips: ipam.ips.map(ip => ({ ...ip, interface: 0 })) } : {}),
    ...defined({ dns: dnsOf(conf, ipam) }),
  };
}

/** The runtime, or its hook, makes a device node with this number in the container. */
function readNode({ containerNetns, env }: Call): string {
  return inNetns(containerNetns, () => readTapNode(env.ifname));
}
