// What does portmap do for each verb?
import { attachmentOf, validAttachmentsOf } from '../../src/attach/owner.ts';
import { renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { networkOf } from '../../src/net/cidr.ts';
import { getRestore } from '../../src/netlink/iptables/restore.ts';
import { COMMENT_MAX_LENGTH } from '../../src/netlink/nft/userdata.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { findSysctl } from '../../src/sys/sysctl.ts';
import {
  backendOf,
  iptablesOptionsOf,
  PortmapConf,
  parsePortMappings,
  validatePortmapConf,
} from './config.ts';
import { type Claim, type Masquerading, ownerOf } from './elements.ts';
import { claimPorts, trySkeleton } from './kernel/claim.ts';
import { forgetStaleFlows } from './kernel/flows.ts';
import { checkIptablesPorts, ensureIptablesPorts } from './kernel/iptables.ts';
import { findSwitch, openLocalhost } from './kernel/localhost.ts';
import { removeHostportRules, removeIptablesPorts, sweepIptablesPorts } from './kernel/reference.ts';
import { releasePorts, sweepPorts } from './kernel/release.ts';
import { checkPorts } from './kernel/verify.ts';
import { type FamilyPlan, planForwards, podAddressesOf } from './plan.ts';

/** Leads ports of the host to the pod. */
export const portmap = definePlugin({
  name: 'portmap',
  config: PortmapConf,
  netns: 'required',

  add(call) {
    const plans = plansOf(call);
    const { prevResult = {} } = call;
    if (plans.length === 0) return prevResult;
    if (backendOf(call.conf) === 'iptables') {
      const owner = attachmentOf(call);
      call.onFailure('remove the rules of iptables', () => void removeIptablesPorts(call.hostNft, owner));
      ensureIptablesPorts(call.hostNft, plans, owner, iptablesOptionsOf(call.conf));
      forgetFlows(call, plans, []);
    } else {
      const owner = ownerOf(attachmentOf(call));
      const gone = claimPorts(call.hostNft, plans, owner, masqueradingOf(call.conf));
      call.onFailure('release the host ports', () => void releasePorts(call.hostNft, owner));
      forgetFlows(call, plans, gone);
    }
    if (call.conf.snat) openLocalhost(call.host, plans);
    return prevResult;
  },

  check(call) {
    const plans = plansOf(call);
    if (plans.length === 0) return;
    const owner = attachmentOf(call);
    if (backendOf(call.conf) === 'iptables') checkIptablesPorts(plans, owner, iptablesOptionsOf(call.conf));
    else checkPorts(call.hostNft, plans, ownerOf(owner), masqueradingOf(call.conf));
    const path = call.conf.snat ? findSwitch(call.host, plans) : undefined;
    if (path) confirm(`sysctl "${path}"`, '1', findSysctl(path));
  },

  async del(call) {
    const owner = attachmentOf(call);
    const { hostNft } = call;
    // Whatever is configured now: ADD may have been another release, another configuration, or the reference.
    await tryAll([
      () => forgetFlows(call, [], releasePorts(hostNft, ownerOf(owner))),
      () => {
        if (removeIptablesPorts(hostNft, owner)) forgetFlows(call, [], claimsAsked(call));
      },
      () => removeHostportRules(hostNft, owner.containerId, podAddressesOf(call.prevResult, owner.ifname)),
    ]);
  },

  async gc(call) {
    const { hostNft, network } = call;
    const valid = validAttachmentsOf(call);
    if (valid === undefined) return;
    const notes = new Set(valid.map(one => renderOwner(one, COMMENT_MAX_LENGTH)));
    const containers = new Set(valid.map(({ containerId }) => containerId));
    await tryAll([
      () => forgetFlows(call, [], sweepPorts(hostNft, network, notes)),
      () => sweepIptablesPorts(hostNft, network, containers),
    ]);
  },

  status(call) {
    validatePortmapConf(call.conf);
    try {
      if (backendOf(call.conf) === 'nftables') trySkeleton(call.hostNft);
      else for (const family of [4, 6] as const) getRestore(family);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot map ports: ${(cause as Error).message}`, { cause });
    }
  },
});

function plansOf(call: Call<PortmapConf>): FamilyPlan[] {
  validatePortmapConf(call.conf);
  if (call.prevResult === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot map ports: the request has no "prevResult"; put this link behind one that gives the pod an address',
    );
  }
  return planForwards(parsePortMappings(call.conf), call.prevResult, call.env.ifname);
}

function masqueradingOf({ snat, masqAll }: PortmapConf): Masquerading {
  if (!snat) return 'none';
  return masqAll ? 'all' : 'local';
}

/** What the request says was mapped: rules of iptables are not read for it. */
function claimsAsked(call: Call<PortmapConf>): Claim[] {
  try {
    return plansOf(call).flatMap(({ family, pod, forwards }) =>
      forwards.map((forward, number) => ({
        ...forward,
        family,
        number,
        pod: pod.ip,
        subnet: networkOf(pod),
      })),
    );
  } catch {
    // DEL need not know.
    return [];
  }
}

/** A flow that lives on is an annoyance; failing for it would take the mapping away altogether. */
function forgetFlows(call: Call, plans: readonly FamilyPlan[], gone: readonly Claim[]): void {
  try {
    forgetStaleFlows(call, plans, gone);
  } catch (thrown) {
    call.log.warn('stale UDP flows may live on', { reason: (thrown as Error).message });
  }
}
