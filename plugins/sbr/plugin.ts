// What does sbr do for each verb?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { findCidr } from '../../src/net/cidr.ts';
import { findLink, getLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { type Call, definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { withContainerLock } from '../../src/plugin/lock.ts';
import { mend } from '../../src/plugin/mend.ts';
import { parseSbrConf, SbrConf } from './config.ts';
import { addressesOf, applySbr, checkSbr, readPresent, removeSbr, requirePolicyRouting } from './kernel.ts';
import { expectMoved, planSbr, type SbrPlan, type Source, sourcesOf } from './plan.ts';

/** Sends packets from an address of the pod through the interface that has the address. */
export const sbr = definePlugin({
  name: 'sbr',
  config: SbrConf,
  netns: 'required',

  add(call) {
    const sources = sourcesOfCall(call);
    if (sources.length > 0) {
      withContainerLock(call, () => {
        applySbr(call, planOf(call, sources, getLink(call.container, call.env.ifname)));
      });
    }
    return call.prevResult ?? {};
  },

  check(call) {
    const sources = sourcesOfCall(call);
    if (sources.length === 0) return;
    const link = getLink(call.container, call.env.ifname);
    const reported = { result: call.prevResult ?? {}, index: link.index };
    const plan = expectMoved(planOf(call, sources, link), sources, parseSbrConf(call.conf), reported);
    checkSbr(link, plan, readPresent(call.container, link));
  },

  repair(call) {
    const sources = sourcesOfCall(call);
    const link = findLink(call.container, call.env.ifname);
    if (sources.length === 0 || link === undefined) return;
    withContainerLock(call, () => {
      const plan = planOf(call, sources, link);
      mend(
        () => checkSbr(link, plan, readPresent(call.container, link)),
        () => applySbr(call, plan),
      );
    });
  },

  del(call) {
    // Rules and routes are deleted with the namespace.
    if (call.findContainerNetns() === undefined) return;
    withContainerLock(call, () => {
      // Another container may have been attached in the namespace during the wait.
      if (call.findContainerNetns(true) === undefined) return;
      const link = findLink(call.container, call.env.ifname);
      const reported = (call.prevResult?.ips ?? []).flatMap(({ address, interface: index }) => {
        const own = index === undefined ? undefined : call.prevResult?.interfaces?.[index];
        return own && own.name !== call.env.ifname ? [] : (findCidr(address)?.ip ?? []);
      });
      const { table } = call.conf;
      removeSbr(
        call.container,
        link,
        [...addressesOf(call.container, link), ...reported],
        table || undefined,
      );
    });
  },

  gc: nothingToDo('the kernel deletes rules and routes with the namespace'),

  status(call) {
    parseSbrConf(call.conf);
    try {
      requirePolicyRouting(call.host);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot route by source: ${(cause as Error).message}`, {
        cause,
      });
    }
  },
});

function sourcesOfCall(call: Call<SbrConf>): Source[] {
  const options = parseSbrConf(call.conf);
  if (call.prevResult === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot route by source: the request has no "prevResult"; place this plugin after one that assigns addresses to the pod',
    );
  }
  return sourcesOf(call.prevResult, call.env.ifname, options);
}

function planOf(call: Call<SbrConf>, sources: readonly Source[], link: Link): SbrPlan {
  return planSbr(sources, parseSbrConf(call.conf), readPresent(call.container, link));
}
