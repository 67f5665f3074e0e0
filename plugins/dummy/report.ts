// What does ADD report about an attachment?
import type { ContainerAddressing } from '../../src/attach/addressing.ts';
import { dnsOf } from '../../src/attach/ipam.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { DummyConf } from './config.ts';
import { CONTAINER_INTERFACE } from './plan.ts';

/** The result: the device, then the IPAM result. */
export function renderDummy(
  { conf, env, version }: Call<DummyConf>,
  link: Link,
  ipam: Result | undefined,
  addressing: ContainerAddressing | undefined,
): Result {
  const mtu = atLeast(version, '1.1.0') ? link.mtu : undefined;
  const ips = addressing?.ips.map(({ cidr, gateway }) => ({
    address: renderCidr(cidr),
    ...(gateway ? { gateway: renderIp(gateway) } : {}),
    interface: CONTAINER_INTERFACE,
  }));
  return {
    ...ipam,
    interfaces: [{ name: link.name, mac: link.mac ?? '', sandbox: env.netns, ...defined({ mtu }) }],
    ...defined({ ips, dns: dnsOf(conf, ipam) }),
  };
}
