// What does the plugin restore when others have changed the host end, routes or rules?
import { checkAddresses } from '../../src/attach/check.ts';
import { repairAddresses, repairInterface } from '../../src/attach/container-repair.ts';
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import { withSources } from '../../src/attach/masq-source.ts';
import { checkMasquerading, startMasquerading } from '../../src/attach/masquerading.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import { findLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { type PtpConf, validatePtpConf } from './config.ts';
import { addHostAddress, addHostRoute } from './kernel.ts';
import { type PtpPlan, planFromResult } from './plan.ts';

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

function raise(socket: Call['host'], link: Link): void {
  if (!(link.flags & IFF_UP)) setLink(socket, link.index, { up: true });
}
