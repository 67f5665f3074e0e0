// Is everything that ADD made still as ADD made it?

import { checkAddresses } from '../../src/attach/check.ts';
import { repairAddresses, repairInterface } from '../../src/attach/container-repair.ts';
import { checkContainerEnd, checkHostEnd, raise } from '../../src/attach/device/check.ts';
import { checkForwarding, ensureForwarding } from '../../src/attach/forwarding.ts';
import { backendOf, withSources } from '../../src/attach/masq-source.ts';
import { checkMasquerading, startMasquerading } from '../../src/attach/masquerading.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import type { Result } from '../../src/cni/result.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { sameIp } from '../../src/net/ip.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { listRoutes } from '../../src/netlink/rtnl/route.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { type PtpConf, validatePtpConf } from './config.ts';
import { addHostAddress, addHostRoute } from './kernel.ts';
import { type PtpPlan, planFromResult } from './plan.ts';

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
  const host = checkHostEnd(call, { prevResult, mtu: call.conf.mtu }, container);
  checkAddresses(call.host, host, plan.hostAddresses);
  checkRoutes(call.host, host, plan.hostRoutes);
  checkForwarding(plan.ips.map(({ cidr }) => cidr.ip));
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

/**
 * Restores the state of both ends, their addresses and routes, masquerading and forwarding.
 * @throws Error when the pair is missing: only a new ADD can make it, and whatever refers to it must not be restored alone
 */
export async function repairConnection(call: Call<PtpConf>): Promise<void> {
  const { conf, host, container, prevResult } = call;
  const inside = findLink(container, call.env.ifname);
  const outside = inside && findLink(host, inside.peer);
  if (!prevResult || !inside || !outside) {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate interface "${call.env.ifname}" and its host end`,
    );
  }
  const plan = planFromResult(prevResult, validatePtpConf(conf));
  const cidrs = plan.ips.map(({ cidr }) => cidr);
  await tryAll([
    () => void repairInterface(call, inside),
    () => raise(container, inside),
    () => repairAddresses(call, inside, cidrs),
    () => raise(host, outside),
    () => repairHostEnd(call, outside, plan),
    () => repairRoutes(call, inside, plan),
    () =>
      ensureForwarding(
        call,
        cidrs.map(({ ip }) => ip),
      ),
    () => {
      if (!conf.ipMasq) return;
      mend(
        () => checkMasquerading(call, backendOf(conf), withSources(conf, cidrs)),
        () => startMasquerading(call, conf, withSources(conf, cidrs)),
      );
    },
  ]);
}

function repairHostEnd({ host }: Call, outside: Link, plan: PtpPlan): void {
  for (const cidr of plan.hostAddresses) {
    mend(
      () => checkAddresses(host, outside, [cidr]),
      () => addHostAddress(host, outside, cidr),
    );
  }
  for (const route of plan.hostRoutes) {
    mend(
      () => checkRoutes(host, outside, [route]),
      () => addHostRoute(host, outside, route),
    );
  }
}

function repairRoutes({ container }: Call, inside: Link, plan: PtpPlan): void {
  for (const routes of [plan.toGateways, plan.routes, plan.toSubnets]) {
    mend(
      () => checkRoutes(container, inside, routes),
      () => putRoutesRight(container, inside, routes),
    );
  }
}
