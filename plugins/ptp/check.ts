// Is everything that ADD made still as ADD made it?
import { checkAddresses, checkMac, stateOf } from '../../src/attach/check.ts';
import { checkForwarding } from '../../src/attach/forwarding.ts';
import { AUTO_MTU } from '../../src/attach/mtu.ts';
import { checkRoutes } from '../../src/attach/routes.ts';
import type { Result } from '../../src/cni/result.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { sameIp } from '../../src/net/ip.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { listRoutes } from '../../src/netlink/rtnl/route.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { PtpConf } from './config.ts';
import type { PtpPlan } from './plan.ts';

/**
 * Compares both ends, their addresses and routes, and forwarding with the result of ADD. Masquerading is checked separately, in
 * the plugin.
 * @throws Error naming the first difference
 */
export function checkConnection(call: Call<PtpConf>, prevResult: Result, plan: PtpPlan): void {
  const container = checkContainerEnd(call, prevResult);
  checkAddresses(
    call.container,
    container,
    plan.ips.map(({ cidr }) => cidr),
  );
  checkRoutes(call.container, container, [...plan.toGateways, ...plan.toSubnets, ...plan.routes]);
  refuseOnLink(call, container, plan);
  const host = checkHostEnd(call, prevResult, container);
  checkAddresses(call.host, host, plan.hostAddresses);
  checkRoutes(call.host, host, plan.hostRoutes);
  checkForwarding(plan.ips.map(({ cidr }) => cidr.ip));
}

function checkContainerEnd({ container, env }: Call, prevResult: Result): Link {
  const name = `interface "${env.ifname}"`;
  const reported = prevResult.interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(container, env.ifname);
  confirm(`kind of ${name}`, 'veth', link?.kind);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  checkMac(name, reported, link);
  // A later plugin such as tuning may legitimately have changed it, and then says so in the result.
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  return link;
}

function checkHostEnd({ host, conf }: Call<PtpConf>, prevResult: Result, container: Link): Link {
  const link = findLink(host, container.peer);
  const name = `host end of "${container.name}"`;
  const reported = prevResult.interfaces?.find(one => one.name === link?.name && !one.sandbox);
  confirm(`${name} in the result`, link?.name, reported?.name);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  checkMac(name, reported, link);
  // An uplink may have got another MTU since ADD.
  if (conf.mtu && conf.mtu !== AUTO_MTU) confirm(`MTU of ${name}`, conf.mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  return link;
}

/** If the kernel's own on-link route to the subnet came back, the container would look for its neighbours on the wrong link. */
function refuseOnLink({ container }: Call, link: Link, { notOnLink }: PtpPlan): void {
  const present = listRoutes(container).filter(({ oif, gateway, ways }) => {
    return oif === link.index && !gateway && !ways;
  });
  for (const { dst } of notOnLink) {
    const found = present.find(one => one.dst.prefix === dst.prefix && sameIp(one.dst.ip, dst.ip));
    if (found) confirm(`routes of "${link.name}" without gateway`, undefined, renderCidr(found.dst));
  }
}
