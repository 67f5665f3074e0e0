// What does bandwidth do for each verb?
import type { Attachment } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { requireLinkKind, requireTbf } from '../../src/netlink/rtnl/supported.ts';
import { readTicksPerUs } from '../../src/netlink/rtnl/tc/psched.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { BandwidthConf, isSurelyUnlimited, isUnlimited, type Limits, limitsOf } from './config.ts';
import { findHostVeths, getHostVeth } from './host-veth.ts';
import { findIfbs, listIfbsOf } from './ifb.ts';
import {
  applyEgress,
  applyIngress,
  removeEgress,
  removeIngress,
  verifyEgress,
  verifyIngress,
} from './kernel.ts';
import { type Bucket, planShaping, type Shaping } from './plan.ts';

/** Limits how fast packets go to and from a container, on the host's end of its veth. */
export const bandwidth = definePlugin({
  name: 'bandwidth',
  config: BandwidthConf,
  since: '0.3.0',
  netns: 'required',

  async add(call) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requirePrevResult(call);
    if (isUnlimited(limits)) return prevResult;
    const { host } = call;
    const attachment = attachmentOf(call);
    const veth = getHostVeth(call, prevResult);
    const { ingress, egress } = planFor(veth, limits);
    warnOfBurst(call, 'ingress', ingress);
    warnOfBurst(call, 'egress', egress);
    call.onFailure('remove the limits', async () => {
      removeIngress(host, veth);
      await removeDetour(call, veth);
    });
    if (ingress) applyIngress(host, veth, ingress);
    else removeIngress(host, veth);
    if (!egress) {
      await removeDetour(call, veth);
      return prevResult;
    }
    const { name, mac } = applyEgress(host, veth, attachment, egress);
    return {
      ...prevResult,
      interfaces: [...(prevResult.interfaces ?? []), { name, ...(mac ? { mac } : {}) }],
    };
  },

  check(call) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requirePrevResult(call);
    if (isUnlimited(limits)) return;
    const veth = getHostVeth(call, prevResult);
    const { ingress, egress } = planFor(veth, limits);
    if (ingress) verifyIngress(call.host, veth, ingress);
    if (egress) verifyEgress(call.host, veth, attachmentOf(call), egress);
  },

  async del(call) {
    const { host } = call;
    const ifbs = findIfbs(host, attachmentOf(call));
    if (isSurelyUnlimited(call.conf, call.request) && ifbs.length === 0) return;
    const veths = findHostVeths(call);
    await call.removeLinks(ifbs, () => {
      // With a main plugin of ours, they have gone together with the IFB device.
      const left = veths.filter(veth => findLink(host, veth.index)?.name === veth.name);
      for (const veth of left) removeIngress(host, veth);
      removeEgress(host, left, ifbs);
    });
  },

  async gc(call) {
    const { validAttachments } = call;
    if (validAttachments === undefined) return;
    const orphans = listIfbsOf(call.host, call.network).filter(({ owner }) => {
      return !validAttachments.some(
        ({ containerID, ifname }) => containerID === owner.containerId && ifname === owner.ifname,
      );
    });
    await call.removeLinks(orphans.map(({ link }) => link));
  },

  status(call) {
    try {
      requireLinkKind(call.host, 'ifb');
      requireTbf(call.host);
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
    'Cannot limit bandwidth: "prevResult" is missing; must be called as a chained plugin, after one that makes a veth',
  );
}

function planFor(veth: Link, limits: Limits): Shaping {
  return planShaping(limits, { mtu: veth.mtu, ticksPerUs: readTicksPerUs() });
}

function warnOfBurst({ log }: Call, direction: string, bucket: Bucket | undefined): void {
  if (bucket?.raisedFromBits !== undefined) {
    log.warn(`${direction}Burst is smaller than a frame and was raised`, {
      configured: bucket.raisedFromBits,
    });
  }
  if (bucket?.unlimitedMs !== undefined) {
    log.warn(`${direction}Burst lets everything pass for a while: it may be larger than meant`, {
      milliseconds_at_10_gbit: bucket.unlimitedMs,
    });
  }
}

/** The redirect goes before its target, so that no packet is led to nowhere. */
async function removeDetour(call: Call, veth: Link): Promise<void> {
  const ifbs = findIfbs(call.host, attachmentOf(call));
  removeEgress(call.host, [veth], ifbs);
  await call.removeLinks(ifbs);
}

function attachmentOf({ network, env }: Call): Attachment {
  return { network, containerId: env.containerId, ifname: env.ifname };
}
