// What does ADD report about an attachment?
import { dnsOf } from '../../src/attach/ipam.ts';
import type { Pair } from '../../src/attach/veth.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { PtpConf } from './config.ts';
import { CONTAINER_INTERFACE, type PtpPlan } from './plan.ts';

/** The result: host end and container interface in this order, then the IPAM result. */
export function renderConnection(
  { conf, env, version }: Call<PtpConf>,
  { host, container }: Pair,
  ipam: Result,
  { ips }: PtpPlan,
): Result {
  const reportsMtu = conf.mtu !== 0 && atLeast(version, '1.1.0');
  const dns = dnsOf(conf, ipam);
  return {
    ...ipam,
    interfaces: [
      { name: host.name, mac: host.mac ?? '' },
      {
        name: container.name,
        mac: container.mac ?? '',
        sandbox: env.netns,
        ...(reportsMtu ? { mtu: container.mtu } : {}),
      },
    ],
    ips: ips.map(({ cidr, gateway }) => ({
      address: renderCidr(cidr),
      gateway: renderIp(gateway),
      interface: CONTAINER_INTERFACE,
    })),
    ...defined({ dns }),
  };
}
