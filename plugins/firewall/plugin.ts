// What does firewall do for each verb?
import { warnOfDroppingChains } from '../../src/attach/dropping.ts';
import { type FilterOwner, filterOwnerOf } from '../../src/attach/handle.ts';
import { attachmentOf, validAttachmentsOf } from '../../src/attach/owner.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { type Backend, FirewallConf, type Other, parseFirewallConf, zoneOf } from './config.ts';
import { requireZone } from './firewalld/sources.ts';
import { admit, findFormerOwners, tryAdmission } from './kernel/admit.ts';
import { tryIptables } from './kernel/iptables.ts';
import { sweepLeftovers } from './kernel/leftovers.ts';
import {
  checkOthers,
  findOthers,
  forgetForeign,
  haveOthersForget,
  isToldByReference,
  type Names,
  requireOthers,
  tellOthers,
} from './kernel/others.ts';
import { findDead, isKnown, shutOut, sweep } from './kernel/release.ts';
import { checkAdmission } from './kernel/verify.ts';
import { type AccessPlan, planAccess } from './plan.ts';

/** Lets packets to and from the pod pass, and says who may come to it. */
export const firewall = definePlugin({
  name: 'firewall',
  config: FirewallConf,
  since: '0.4.0',
  netns: 'required',

  async add(call) {
    const { plan, names } = await wantedOf(call);
    const { prevResult = {} } = call;
    if (plan.pods.length === 0) return prevResult;
    await requireOthers(plan, names);
    const owner = ownerOf(call);
    const nft = call.hostNft;
    await haveOthersForget(nft, [owner, ...findFormerOwners(nft, plan, owner)], { plan, names });
    admit(nft, plan, owner);
    call.onFailure('remove the rules', () => remove(nft, [owner]));
    await tellOthers(plan, names);
    return prevResult;
  },

  async check(call) {
    const { plan, names } = await wantedOf(call);
    if (plan.pods.length === 0) return;
    if (!(await isToldByReference(call.hostNft, plan, names))) {
      checkAdmission(call.hostNft, plan, ownerOf(call));
      await checkOthers(plan, names);
    }
    warnOfDroppingChains(call, plan.others.includes('iptables'));
  },

  async repair(call) {
    const { plan, names } = await wantedOf(call);
    if (plan.pods.length === 0 || (await isToldByReference(call.hostNft, plan, names))) return;
    const owner = ownerOf(call);
    mend(
      () => checkAdmission(call.hostNft, plan, owner),
      () => admit(call.hostNft, plan, owner),
    );
    await checkOthers(plan, names).catch(() => tellOthers(plan, names));
  },

  async del(call) {
    const owner = ownerOf(call);
    const pods = planAccess(call.prevResult ?? {}, 'open').pods;
    const isForeign = pods.length > 0 && !isKnown(call.hostNft, pods);
    await remove(call.hostNft, [owner]);
    if (isForeign) await forgetForeign(call.hostNft, pods, zoneOf(call.conf));
  },

  async gc(call) {
    const valid = validAttachmentsOf(call);
    if (valid === undefined) return;
    const notes = new Set(valid.map(one => filterOwnerOf(one).note));
    await remove(call.hostNft, findDead(call.hostNft, call.network, notes));
    sweep(call.hostNft, call.network, notes);
    sweepLeftovers(call);
  },

  async status(call) {
    const { policy, backend, zone } = parseFirewallConf(call.conf);
    try {
      tryAdmission(call.hostNft, policy);
      if (backend === 'iptables') tryIptables();
      if (backend === 'firewalld') await requireZone(zone);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot let packets pass: ${(cause as Error).message}`, {
        cause,
      });
    }
    warnOfDroppingChains(call, backend === 'iptables');
  },
});

interface Wanted {
  readonly plan: AccessPlan;
  readonly names: Names;
}

async function wantedOf(call: Call<FirewallConf>): Promise<Wanted> {
  const { policy, backend, ...names } = parseFirewallConf(call.conf);
  if (call.prevResult === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot let packets pass: the request has no "prevResult"; put this link behind one that gives the pod an address',
    );
  }
  const access = planAccess(call.prevResult, policy);
  const others = backend === undefined ? await findOthers(call.hostNft, access.pods) : othersOf(backend);
  return { plan: { ...access, others }, names };
}

function othersOf(backend: Backend): Other[] {
  return backend === 'nftables' ? [] : [backend];
}

async function remove(nft: NetlinkSocket, owners: readonly FilterOwner[]): Promise<void> {
  await haveOthersForget(nft, owners);
  for (const owner of owners) shutOut(nft, owner);
}

function ownerOf(call: Call): FilterOwner {
  return filterOwnerOf(attachmentOf(call));
}
