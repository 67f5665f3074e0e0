// What does firewall do for each verb?
import { type FilterOwner, filterOwnerOf } from '../../src/attach/handle.ts';
import { attachmentOf, validAttachmentsOf } from '../../src/attach/owner.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Ip } from '../../src/net/ip.ts';
import { getRestore } from '../../src/netlink/iptables/restore.ts';
import { renderTable } from '../../src/netlink/nft/message.ts';
import { listDroppingChains } from '../../src/netlink/nft/policy.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { type Backend, FirewallConf, parseFirewallConf } from './config.ts';
import { admit, findFormerOwners, isKnown, tryAdmission } from './kernel/admit.ts';
import {
  checkIptables,
  doesIptablesDrop,
  ensureIptables,
  releaseForeign,
  releaseIptables,
  tryIptables,
} from './kernel/iptables.ts';
import { findDead, findIptablesClaims, shutOut, sweep } from './kernel/release.ts';
import { checkAdmission } from './kernel/verify.ts';
import { type AccessPlan, planAccess } from './plan.ts';

/** Lets packets to and from the pod pass, and says who may come to it. */
export const firewall = definePlugin({
  name: 'firewall',
  config: FirewallConf,
  since: '0.4.0',
  netns: 'required',

  add(call) {
    const { plan, adminChain } = wantedOf(call);
    const { prevResult = {} } = call;
    if (plan.pods.length === 0) return prevResult;
    const owner = ownerOf(call);
    const nft = call.hostNft;
    const outdated = findIptablesClaims(nft, [owner, ...findFormerOwners(nft, plan, owner)]);
    releaseIptables(nft, outdated, plan.backend === 'iptables' ? plan : undefined);
    admit(nft, plan, owner);
    call.onFailure('remove the rules', () => remove(nft, [owner]));
    if (plan.backend === 'iptables') ensureIptables(plan, adminChain);
    return prevResult;
  },

  check(call) {
    const { plan, adminChain } = wantedOf(call);
    if (plan.pods.length === 0) return;
    checkAdmission(call.hostNft, plan, ownerOf(call));
    if (plan.backend === 'iptables') checkIptables(plan, adminChain);
    warnOfDroppingChains(call, plan.backend);
  },

  del(call) {
    const owner = ownerOf(call);
    const pods = planAccess(call.prevResult ?? {}, 'open').pods;
    const isForeign = pods.length > 0 && !isKnown(call.hostNft, pods);
    remove(call.hostNft, [owner]);
    if (isForeign) releaseForeign(call.hostNft, pods);
  },

  gc(call) {
    const valid = validAttachmentsOf(call);
    if (valid === undefined) return;
    const notes = new Set(valid.map(one => filterOwnerOf(one).note));
    remove(call.hostNft, findDead(call.hostNft, call.network, notes));
    sweep(call.hostNft, call.network, notes);
  },

  status(call) {
    const { policy, backend = 'nftables' } = parseFirewallConf(call.conf);
    try {
      tryAdmission(call.hostNft, policy);
      if (backend === 'iptables') tryIptables();
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot let packets pass: ${(cause as Error).message}`, {
        cause,
      });
    }
    warnOfDroppingChains(call, backend);
  },
});

interface Wanted {
  readonly plan: AccessPlan;
  readonly adminChain: string;
}

function wantedOf(call: Call<FirewallConf>): Wanted {
  const { policy, backend, adminChain } = parseFirewallConf(call.conf);
  if (call.prevResult === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot let packets pass: the request has no "prevResult"; put this link behind one that gives the pod an address',
    );
  }
  const access = planAccess(call.prevResult, policy);
  return { plan: { ...access, backend: backend ?? chooseBackend(call, access.pods) }, adminChain };
}

/** Where iptables drops what it was not told to accept, nobody else can let a packet pass. */
function chooseBackend(call: Call, pods: readonly Ip[]): Backend {
  if (!doesIptablesDrop(call.hostNft, pods)) return 'nftables';
  try {
    for (const { family } of pods) getRestore(family);
    return 'iptables';
  } catch {
    return 'nftables';
  }
}

function remove(nft: NetlinkSocket, owners: readonly FilterOwner[]): void {
  releaseIptables(nft, findIptablesClaims(nft, owners));
  for (const owner of owners) shutOut(nft, owner);
}

function ownerOf(call: Call): FilterOwner {
  return filterOwnerOf(attachmentOf(call));
}

/** A packet has to get past every table: what a host drops by itself, no rule of ours lets pass. */
function warnOfDroppingChains(call: Call, backend: Backend): void {
  for (const { table, chain } of listDroppingChains(call.hostNft, 'forward')) {
    if (backend === 'iptables' && table.name === 'filter' && chain === 'FORWARD') continue;
    call.log.warn(
      `chain "${chain}" of table ${renderTable(table)} drops forwarded packets that its own rules do not accept`,
      { hint: 'packets of pods pass only if a rule there accepts them' },
    );
  }
}
