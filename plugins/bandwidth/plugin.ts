// What does bandwidth do for each verb?
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findLinks, type Link } from '../../src/netlink/rtnl/link.ts';
import { requireLinkKind, requireQdiscKind } from '../../src/netlink/rtnl/supported.ts';
import { ticksPerUs } from '../../src/netlink/rtnl/tc/psched.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import {
  BandwidthConf,
  ignoresRuntime,
  isUnlimited,
  LIMIT_OPTIONS,
  type Limits,
  limitsOf,
} from './config.ts';
import { findGarbage } from './garbage.ts';
import { findHostVeths, getHostVeth } from './host-veth.ts';
import { findIfbs } from './ifb.ts';
import { applyShaping, removeShaping, verifyShaping } from './kernel.ts';
import { planShaping, type Shaper, type Shaping } from './plan.ts';
import { withIfb } from './result.ts';

/** Limits the rate of packets to and from a container, at the host end of its veth. */
export const bandwidth = definePlugin({
  name: 'bandwidth',
  config: BandwidthConf,
  since: '0.3.0',
  netns: 'required',
  changeable: [...LIMIT_OPTIONS, 'shapedSubnets', 'unshapedSubnets'],

  async add(call) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requirePrevResult(call);
    if (ignoresRuntime(call.conf, call.request)) {
      call.log.warn('ignoring the limits from the runtime: the configuration has its own');
    }
    if (isUnlimited(limits)) return prevResult;
    const veth = getHostVeth(call, prevResult);
    const shaping = planFor(veth, limits);
    warnOfBurst(call, 'ingress', shaping.ingress);
    warnOfBurst(call, 'egress', shaping.egress);
    const attachment = attachmentOf(call);
    call.onFailure('remove the limits', async () => {
      // The redirect is removed before its target, so that no packet is redirected to a missing device.
      const ifbs = findIfbs(call.host, attachment);
      removeShaping(call.host, [veth], ifbs);
      await call.removeDevices(ifbs);
    });
    const { ifb, unused } = applyShaping(call.host, veth, attachment, shaping);
    await call.removeDevices(unused);
    return withIfb(prevResult, attachment, ifb);
  },

  check(call) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requirePrevResult(call);
    if (isUnlimited(limits)) return;
    const veth = getHostVeth(call, prevResult);
    verifyShaping(call.host, veth, attachmentOf(call), planFor(veth, limits));
  },

  async repair(call) {
    const limits = limitsOf(call.conf, call.request);
    if (isUnlimited(limits)) return;
    const [veth, attachment] = [getHostVeth(call, requirePrevResult(call)), attachmentOf(call)];
    const shaping = planFor(veth, limits);
    let unused: readonly Link[] = [];
    mend(
      () => verifyShaping(call.host, veth, attachment, shaping),
      () => {
        unused = applyShaping(call.host, veth, attachment, shaping).unused;
      },
    );
    await call.removeDevices(unused);
  },

  async change(call, mode) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requirePrevResult(call);
    const [veth, attachment] = [getHostVeth(call, prevResult), attachmentOf(call)];
    if (mode === 'look') return prevResult;
    const { ifb, unused } = applyShaping(call.host, veth, attachment, planFor(veth, limits));
    await call.removeDevices(unused);
    return withIfb(prevResult, attachment, ifb);
  },

  async del(call) {
    // Ignores the current configuration: limits may exist in any case.
    const { host } = call;
    const ifbs = findIfbs(host, attachmentOf(call));
    const veths = findHostVeths(call);
    await call.removeDevices(ifbs, () => {
      // With a main plugin of ours, they have disappeared together with the IFB device.
      const present = findLinks(
        host,
        veths.map(({ index }) => index),
      );
      const left = veths.filter(({ name }, i) => present[i]?.name === name);
      removeShaping(host, left, ifbs);
    });
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await call.removeDevices(await findGarbage(call.host, call.network, kept));
  },

  status(call) {
    try {
      requireLinkKind(call.host, 'ifb');
      requireQdiscKind(call.host, 'tbf');
      const { shapedSubnets, unshapedSubnets } = call.conf;
      if (shapedSubnets || unshapedSubnets) requireQdiscKind(call.host, 'htb');
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, 'Cannot limit bandwidth on this node', {
        details: (cause as Error).message,
        cause,
      });
    }
  },
});

function requirePrevResult({ prevResult }: Call): Result {
  if (prevResult) return prevResult;
  throw new CniError(
    ErrorCode.invalidConfig,
    'Cannot limit bandwidth: "prevResult" is missing; must be called as a chained plugin, after one that creates a veth pair',
  );
}

function planFor(veth: Link, limits: Limits): Shaping {
  return planShaping(limits, { mtu: veth.mtu, ticksPerUs: ticksPerUs() });
}

function warnOfBurst({ log }: Call, direction: string, shaper: Shaper | undefined): void {
  const { raisedFromBits, unlimitedMs } = shaper?.bucket ?? {};
  if (raisedFromBits !== undefined) {
    log.warn(`${direction}Burst is smaller than a frame and was raised to one`, {
      configured: raisedFromBits,
    });
  }
  if (unlimitedMs !== undefined) {
    log.warn(`${direction}Burst passes all traffic for a while: it may be larger than intended`, {
      milliseconds_at_10_gbit: unlimitedMs,
    });
  }
}

function attachmentOf({ network, env }: Call): AttachmentId {
  return { network, containerId: env.containerId, ifname: env.ifname };
}
