// What does portmap do for each verb?
import { renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { COMMENT_MAX_LENGTH } from '../../src/netlink/nft/userdata.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { findSysctl } from '../../src/sys/sysctl.ts';
import { PortmapConf, parsePortMappings, validatePortmapConf } from './config.ts';
import { type Claim, type Masquerading, type Owner, ownerOf } from './elements.ts';
import { claimPorts, trySkeleton } from './kernel/claim.ts';
import { forgetStaleFlows } from './kernel/flows.ts';
import { findSwitch, openLocalhost } from './kernel/localhost.ts';
import { releasePorts, sweepPorts } from './kernel/release.ts';
import { checkPorts } from './kernel/verify.ts';
import { type FamilyPlan, planForwards } from './plan.ts';

/** Leads ports of the host to the pod. */
export const portmap = definePlugin({
  name: 'portmap',
  config: PortmapConf,
  netns: 'required',

  add(call) {
    const plans = plansOf(call);
    const { prevResult = {} } = call;
    if (plans.length === 0) return prevResult;
    const owner = ownerOfCall(call);
    const gone = claimPorts(call.hostNft, plans, owner, masqueradingOf(call.conf));
    call.onFailure('release the host ports', () => void releasePorts(call.hostNft, owner));
    forgetFlows(call, plans, gone);
    if (call.conf.snat) openLocalhost(call.host, plans);
    return prevResult;
  },

  check(call) {
    const plans = plansOf(call);
    if (plans.length === 0) return;
    checkPorts(call.hostNft, plans, ownerOfCall(call), masqueradingOf(call.conf));
    const path = call.conf.snat ? findSwitch(call.host, plans) : undefined;
    if (path) confirm(`sysctl "${path}"`, '1', findSysctl(path));
  },

  del(call) {
    forgetFlows(call, [], releasePorts(call.hostNft, ownerOfCall(call)));
  },

  gc(call) {
    const { network, validAttachments } = call;
    if (validAttachments === undefined) return;
    const valid = validAttachments.map(({ containerID, ifname }) =>
      renderOwner({ network, containerId: containerID, ifname }, COMMENT_MAX_LENGTH),
    );
    forgetFlows(call, [], sweepPorts(call.hostNft, network, new Set(valid)));
  },

  status(call) {
    validatePortmapConf(call.conf);
    try {
      trySkeleton(call.hostNft);
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

function ownerOfCall(call: Call): Owner {
  return ownerOf({ network: call.network, containerId: call.env.containerId, ifname: call.env.ifname });
}

function masqueradingOf({ snat, masqAll }: PortmapConf): Masquerading {
  if (!snat) return 'none';
  return masqAll ? 'all' : 'local';
}

/** A flow that lives on is an annoyance; failing for it would take the mapping away altogether. */
function forgetFlows(call: Call, plans: readonly FamilyPlan[], gone: readonly Claim[]): void {
  try {
    forgetStaleFlows(call, plans, gone);
  } catch (thrown) {
    call.log.warn('stale UDP flows may live on', { reason: (thrown as Error).message });
  }
}
