// What does firewall do for each verb?

import { attachmentOf, type FilterOwner, filterOwnerOf } from '../../src/attach/owner.ts';

import { warnOfDroppingChains } from '../../src/attach/ready.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { renderIp, sameIp } from '../../src/net/ip.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, isStaleNote } from '../../src/plugin/define.ts';
import { mend, requireReadiness, requireResult } from '../../src/plugin/steps.ts';
import {
  type Backend,
  FirewallConf,
  type IngressPolicy,
  type Other,
  parseFirewallConf,
  zoneOf,
} from './config.ts';
import {
  allow,
  checkAdmission,
  correctClosed,
  findDead,
  findPods,
  formerOwners,
  isForgettable,
  refuseOldRules,
  removalOf,
  restoreRules,
  revoke,
  sweep,
  sweepLeftovers,
  tryAdmission,
  withHome,
  withPort,
} from './kernel/elements.ts';
import { tryIptables } from './kernel/iptables.ts';
import {
  checkOthers,
  findOthers,
  findOthersToCheck,
  forgetForeign,
  haveOthersForget,
  isFirewalldRunning,
  isToldByReference,
  type Names,
  requireOthers,
  requireZone,
  tellOthers,
} from './kernel/others.ts';
import { type AccessPlan, type Claim, planAccess } from './plan.ts';

/** Accepts forwarded traffic to and from the pod and restricts which peers may connect to it. */
export const plugin = definePlugin({
  name: 'firewall',
  config: FirewallConf,
  since: '0.4.0',
  netns: 'required',
  changeable: ['ingressPolicy'],

  async add(call) {
    const { plan, names } = await wantedOf(call);
    const { prevResult = {} } = call;
    if (plan.pods.length === 0) return prevResult;
    await requireOthers(call.hostNft, plan, names);
    await admit(call, { plan, names }, () => {
      call.onFailure('remove the rules', async () => void (await remove(call.hostNft, [ownerOf(call)])));
    });
    return prevResult;
  },

  async check(call) {
    const { plan, names } = await wantedOf(call, findOthersToCheck);
    if (plan.pods.length === 0) return;
    if (!(await isToldByReference(call.hostNft, plan, names))) {
      checkAdmission(call.hostNft, plan, ownerOf(call));
      await checkOthers(call.hostNft, plan, names);
    }
    warnOfDroppingChains(call, plan.others.includes('iptables'));
  },

  async repair(call) {
    const { plan, names } = await wantedOf(call);
    if (plan.pods.length === 0 || (await isToldByReference(call.hostNft, plan, names))) return;
    const owner = ownerOf(call);
    mend(
      () => checkAdmission(call.hostNft, plan, owner),
      () => {
        restoreRules(call.hostNft, plan);
        allow(call, plan, owner, names.adminChain);
        correctClosed(call.hostNft);
      },
    );
    await checkOthers(call.hostNft, plan, names).catch(() => tellOthers(call.hostNft, plan, names));
  },

  async change(call, mode) {
    const { plan, names } = await wantedOf(call);
    const { prevResult = {} } = call;
    if (plan.pods.length === 0) return prevResult;
    await requireOthers(call.hostNft, plan, names);
    if (await isToldByReference(call.hostNft, plan, names)) {
      throw invalidConfig(
        'Cannot change the firewall of a running attachment: the reference plugin made its rules; run DEL and ADD',
      );
    }
    if (mode === 'do') await admit(call, { plan, names }, () => {});
    return prevResult;
  },

  async handOver(call, mode) {
    const { hostNft: nft } = call;
    const owner = ownerOf(call);
    const { claims } = removalOf(nft, owner);
    if (claims.length === 0) return [];
    const { policy, backend, ...names } = parseFirewallConf(call.conf);
    const access = accessOf(call, call.prevResult ?? {}, policy);
    const others = backend === undefined ? await referenceChoice(nft) : othersOf(backend);
    // In the reference's rules, the policy is part of what the named backend gets.
    const plan = { ...access, others, isNamed: true, asReference: true };
    if (mode === 'do') {
      // Packet filters that the reference does not ask on DEL forget the pod; the one that it asks is told about the pod.
      await haveOthersForget(nft, [owner], { plan, names });
      await tellOthers(nft, plan, names);
      const isDeleted = removalOf(nft, owner).claims.length === 0;
      revoke(nft, owner);
      // A concurrent DEL has looked for the rules before they existed.
      if (isDeleted) await forgetForeign(nft, plan.pods, names.zone);
    }
    return [`firewall rules for ${claims.map(({ pod }) => renderIp(pod)).join(' and ')}`];
  },

  async del(call) {
    const { hostNft: nft } = call;
    const owner = ownerOf(call);
    const { pods } = planAccess(call.prevResult ?? {}, 'open');
    const own = findPods(nft, owner, pods);
    const isForeign = own.length === 0 && isForgettable(call, pods);
    const removed = await remove(nft, [owner]);
    // As in GC: what is left now had no claims.
    const isTorn = own.some(pod => !removed.some(claim => sameIp(claim.pod, pod)));
    if (isTorn) sweep(nft, note => note === owner.note);
    if (isForeign || (isTorn && isForgettable(call, pods))) await forgetForeign(nft, pods, zoneOf(call.conf));
  },

  async gc(call) {
    const { kept, network } = call;
    if (kept === undefined) return;
    await remove(call.hostNft, findDead(call.hostNft, network, kept));
    // What is left now had no claims, which say whether other packet filters were told.
    const torn = sweep(call.hostNft, note => isStaleNote(note, network, kept));
    const forgettable = torn.filter(pod => isForgettable(call, [pod]));
    if (forgettable.length) await forgetForeign(call.hostNft, forgettable, zoneOf(call.conf));
    sweepLeftovers(call);
  },

  async status(call) {
    const { policy, backend, zone } = parseFirewallConf(call.conf);
    await requireReadiness(async () => {
      tryAdmission(call.hostNft, policy);
      if (backend === 'iptables') tryIptables(call.hostNft);
      if (backend === 'firewalld') await requireZone(zone);
    }, 'accept traffic');
    warnOfDroppingChains(call, backend === 'iptables');
  },
});

/** @param onAllowed called once there is something to undo */
async function admit(call: Call, { plan, names }: PlannedAccess, onAllowed: () => void): Promise<void> {
  const { hostNft: nft } = call;
  const owner = ownerOf(call);
  if (plan.others.includes('iptables')) refuseOldRules(call, plan.pods);
  await haveOthersForget(nft, [owner, ...formerOwners(call, plan, owner)], { plan, names });
  allow(call, plan, owner, names.adminChain);
  onAllowed();
  await tellOthers(nft, plan, names, 'old');
}

interface PlannedAccess {
  readonly plan: AccessPlan;
  readonly names: Names;
}

async function wantedOf(
  call: Call<FirewallConf>,
  find: typeof findOthersToCheck = findOthers,
): Promise<PlannedAccess> {
  const { policy, backend, ...names } = parseFirewallConf(call.conf);
  const prevResult = requireResult(
    call,
    'Cannot accept traffic: the request has no "prevResult"; place this plugin after one that assigns addresses to the pod',
  );
  const { ingress, ...planned } = accessOf(call, prevResult, policy);
  const access = { ...planned, ...(ingress ? { ingress: withPort(call, ingress) } : {}) };
  const others =
    backend === undefined ? await find(call.hostNft, access.pods, ownerOf(call)) : othersOf(backend);
  return { plan: { ...access, others, isNamed: backend !== undefined }, names };
}

function accessOf({ host }: Call, result: Result, policy: IngressPolicy): ReturnType<typeof planAccess> {
  const { ingress, ...planned } = planAccess(result, policy);
  return { ...planned, ...(ingress ? { ingress: withHome(host, ingress, planned.pods) } : {}) };
}

function othersOf(backend: Backend): Other[] {
  return backend === 'nftables' ? [] : [backend];
}

/** What the reference's firewall uses when no backend is configured: firewalld if it is running, else iptables. */
async function referenceChoice(nft: NetlinkSocket): Promise<Other[]> {
  return [(await isFirewalldRunning(nft)) ? 'firewalld' : 'iptables'];
}

async function remove(nft: NetlinkSocket, owners: readonly FilterOwner[]): Promise<Claim[]> {
  await haveOthersForget(nft, owners);
  return owners.flatMap(owner => revoke(nft, owner));
}

function ownerOf(call: Call): FilterOwner {
  return filterOwnerOf(attachmentOf(call));
}
