// What does ADD report about an attachment?
import { dnsOf } from '../../src/attach/ipam.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { Attached } from './attach.ts';
import type { BridgeConf } from './config.ts';
import { type Addressing, CONTAINER_INTERFACE } from './plan.ts';

/** The result: bridge, host end, container interface and a VLAN's gateway in this order, then the IPAM result. */
export function renderAttachment(
  call: Call<BridgeConf>,
  { bridge: link, host, container, gatewayPort }: Attached,
  ipam: Result | undefined,
  addressing: Addressing | undefined,
): Result {
  const { conf, env, version } = call;
  const reportsMtu = conf.mtu !== 0 && atLeast(version, '1.1.0');
  const interfaces = [
    { name: link.name, mac: link.mac ?? '' },
    { name: host.name, mac: host.mac ?? '' },
    {
      name: container.name,
      mac: container.mac ?? '',
      sandbox: env.netns,
      ...(reportsMtu ? { mtu: container.mtu } : {}),
    },
    ...(gatewayPort ? [{ name: gatewayPort.name, mac: gatewayPort.mac ?? '' }] : []),
  ];
  const dns = dnsOf(conf, ipam);
  const ips = addressing?.ips.map(({ cidr, gateway }) => ({
    address: renderCidr(cidr),
    ...(gateway ? { gateway: renderIp(gateway) } : {}),
    interface: CONTAINER_INTERFACE,
  }));
  const routes = addressing?.resultRoutes;
  return {
    ...ipam,
    interfaces,
    ...defined({ ips }),
    ...(routes?.length ? { routes: [...routes] } : {}),
    ...defined({ dns }),
  };
}
