// What does portmap do for each verb?

import { attachmentOf, gravediggerFor, refuserFor } from '../../src/attach/owner.ts';
import { runDir } from '../../src/cni/directories.ts';
import { attempt, CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { cidrContains, type Ip } from '../../src/net/ip.ts';
import type { NatRule } from '../../src/netlink/iptables/nat.ts';
import { findExemption, findOvertaken } from '../../src/netlink/iptables/precedence.ts';
import { doProgramsChange, inTurn } from '../../src/netlink/iptables/program.ts';
import { listTables } from '../../src/netlink/nft/table.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import { findWay } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, isStaleNote, type KeptAttachments } from '../../src/plugin/define.ts';
import { confirm, mend, requireReadiness, requireResult, tryAll } from '../../src/plugin/steps.ts';
import { ensureSysctl, findSysctl, requireWritableSysctl } from '../../src/sys/sysctl.ts';
import {
  backendOf,
  choiceOf,
  iptablesOptionsOf,
  meansOf,
  PortmapConf,
  parsePortMappings,
  validatePortmapConf,
} from './config.ts';
import { type IptablesOptions, soleOwner } from './iptables-rules.ts';
import {
  type Claimed,
  checkPorts,
  claimPorts,
  restoreRules,
  SuspectError,
  sweepConditions,
  trySkeleton,
  type WantedPorts,
} from './kernel/claim.ts';
import { forgetStaleFlows, type Lost } from './kernel/flows.ts';
import {
  addIptablesPorts,
  chainOwnerOf,
  chainsOf,
  checkIptablesPorts,
  forwardInLegacy,
  isChainThere,
  tryIptablesPorts,
} from './kernel/iptables.ts';
import {
  handOverPorts,
  removeHostportRules,
  removeIptablesPorts,
  sweepHostportRules,
  sweepIptablesPorts,
} from './kernel/reference.ts';
import {
  correctTaken,
  findClaims,
  findDead,
  isKnownAt,
  releasePorts,
  sweepElements,
} from './kernel/release.ts';
import {
  type Backend,
  type FamilyPlan,
  type Forward,
  findIdle,
  type Owner,
  ownerOf,
  PROTOCOLS,
  type Protocol,
  planForwards,
  podAddressesOf,
} from './plan.ts';
import { type Conditions, parseConditions, TABLE } from './sets.ts';

const ALL = 'net/ipv4/conf/all/route_localnet';
const DEFAULT = 'net/ipv4/conf/default/route_localnet';

/**
 * Lets packets with a loopback source leave through the interface that leads to the pod: a bridge, or the pod's own veth. IPv6
 * has no such setting. It stays on, since others behind the interface may need it; a rule of the skeleton drops incoming packets
 * for loopback addresses. Does nothing without a route to the pod, or for ports that no loopback address has.
 * Same as: `sysctl -w net.ipv4.conf.<interface>.route_localnet=1`
 */
function openLocalhost(host: NetlinkSocket, plans: readonly FamilyPlan[]): void {
  const path = findSwitch(host, plans);
  if (path === undefined) return;
  try {
    ensureSysctl(path, '1');
  } catch (cause) {
    throw new CniError(
      ErrorCode.internal,
      `Cannot open host ports to 127.0.0.1: ${(cause as Error).message}`,
      {
        cause,
        details: `set "/proc/sys/${ALL}" to 1 on the node, or map the ports on one of its addresses, or set "snat" to false`,
      },
    );
  }
}

/** Path of the sysctl that {@link openLocalhost} sets, or undefined if there is none to set. */
function findSwitch(host: NetlinkSocket, plans: readonly FamilyPlan[]): string | undefined {
  const plan = plans.find(({ family }) => family === 4);
  const isLoopback = ({ ip }: Forward) => ip === undefined || ip.value >> 24n === 127n;
  // The kernel takes either this interface's value or that for all.
  if (!plan?.forwards.some(isLoopback) || findSysctl(ALL) === '1') return undefined;
  const way = findWay(host, plan.pod.ip);
  // An address of the node itself leads to no pod.
  const link = way && !way.local ? findLink(host, way.oif) : undefined;
  return link && `net/ipv4/conf/${link.name}/route_localnet`;
}

/**
 * Checks that {@link openLocalhost} could do its work, if it has any.
 * @throws Error when /proc/sys is read-only
 */
function tryLocalhost(): void {
  if ([ALL, DEFAULT].some(path => findSysctl(path) === '1')) return;
  requireWritableSysctl(DEFAULT);
}

const ALL_PROTOCOLS = Object.keys(PROTOCOLS) as Protocol[];

/** Forwards host ports to the pod. */
export const plugin = definePlugin({
  name: 'portmap',
  config: PortmapConf,
  netns: 'required',
  changeable: ['snat', 'masqAll', 'conditionsV4', 'conditionsV6'],

  add(call) {
    const wanted = wantedOf(call, chooseBackend);
    const { prevResult = {} } = call;
    const { conf, env, log } = call;
    for (const problem of findIdle(parsePortMappings(conf), prevResult, env.ifname, conf.snat))
      log.warn(problem);
    if (wanted.plans.length === 0) return prevResult;
    const { owner, plans } = wanted;
    const pods = plans.map(({ pod }) => pod.ip);
    const lost = applyPorts(call.hostNft, wanted, iptablesOptionsOf(call.conf), () => {
      call.onFailure('release the host ports', () => removePorts(call.hostNft, owner, pods, () => {}));
    });
    forgetFlows(call, plans, lost);
    if (call.conf.snat) openLocalhost(call.host, plans);
    return prevResult;
  },

  check(call) {
    const wanted = wantedOf(call);
    if (wanted.plans.length === 0) return;
    verify(call, wanted);
    const path = call.conf.snat ? findSwitch(call.host, wanted.plans) : undefined;
    if (path) confirm(`sysctl "${path}"`, '1', findSysctl(path));
  },

  repair(call) {
    const wanted = wantedOf(call);
    const { plans } = wanted;
    if (plans.length === 0) return;
    mend(
      () => verify(call, wanted),
      () => {
        restoreRules(call.hostNft, wanted);
        forgetFlows(call, plans, replace(call, wanted));
        correctTaken(call.hostNft);
      },
    );
    if (call.conf.snat) openLocalhost(call.host, plans);
  },

  async change(call, mode) {
    const wanted = wantedOf(call);
    const { prevResult = {}, hostNft: nft } = call;
    if (mode === 'look') return prevResult;
    const { owner, plans } = wanted;
    // New connections find the change; those through ports that are no longer forwarded, or elsewhere, end.
    const end = (lost: readonly Lost[]) => forgetFlows(call, plans, lost, ALL_PROTOCOLS);
    if (plans.length === 0) await removePorts(nft, owner, podAddressesOf(prevResult, call.env.ifname), end);
    else end(replace(call, wanted));
    if (call.conf.snat) openLocalhost(call.host, plans);
    return prevResult;
  },

  handOver(call, mode) {
    return handOverPorts(call.hostNft, () => wantedOf(call), ownerOf(attachmentOf(call)), call.conf, mode);
  },

  del(call) {
    // Ignores the current configuration: ADD may have been run by another release, with another configuration, or by the
    // reference.
    const owner = ownerOf(attachmentOf(call));
    const pods = podAddressesOf(call.prevResult, call.env.ifname);
    // But more claims than are found say that another program has deleted some.
    const planned = attempt(() => plansOf(call).flatMap(({ forwards }) => forwards)) ?? [];
    return removePorts(call.hostNft, owner, pods, lost => forgetFlows(call, [], lost), planned.length);
  },

  gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    return sweepPorts(call.hostNft, call.network, kept, lost => forgetFlows(call, [], lost));
  },

  status(call) {
    validatePortmapConf(call.conf);
    const backend = backendOf(call.conf);
    return requireReadiness(() => {
      trySkeleton(call.hostNft, backend === 'nftables' ? parseConditions(call.conf) : []);
      if (backend === 'iptables') tryIptablesPorts(call.hostNft, iptablesOptionsOf(call.conf));
      if (call.conf.snat) tryLocalhost();
    }, 'map ports');
  },
});

function verify(call: Call<PortmapConf>, wanted: WantedPorts): void {
  const { plans, owner, means } = wanted;
  const nft = call.hostNft;
  const attachment = attachmentOf(call);
  const options = iptablesOptionsOf(call.conf);
  const isKnown = findClaims(nft, owner).length > 0;
  if (means.backend === 'nftables') {
    // A chain of iptables was then made by the reference, and forwards as well as our sets would.
    const isForeign =
      !isKnown &&
      wanted.conditions.length === 0 &&
      plans.some(({ family }) => isChainThere(nft, family, attachment));
    if (isForeign) checkIptablesPorts(nft, plans, attachment, options, 'reference');
    else checkPorts(nft, wanted);
    return;
  }
  // Here, too, the reference may have made the rules; then our sets do not know about them.
  if (isKnown) checkPorts(nft, wanted);
  const chainOwner = chainOwnerOf(nft, owner, attachment);
  checkIptablesPorts(nft, plans, chainOwner, options, isKnown ? 'catena' : 'reference');
}

/** Replaces rules of the reference that our sets do not record: the same port must not be forwarded to its pod twice. */
function replace(call: Call<PortmapConf>, wanted: WantedPorts): Lost[] {
  const { hostNft: nft } = call;
  const chains = wanted.means.backend === 'nftables' ? chainsOf(nft, wanted.owner) : [];
  return [
    ...chains.flatMap(chain => removeIptablesPorts(nft, chain)),
    ...applyPorts(nft, wanted, iptablesOptionsOf(call.conf), () => {}),
  ];
}

/** @param choose of an attachment that is not known yet */
function wantedOf(call: Call<PortmapConf>, choose: typeof chooseBackend = knownBackend): WantedPorts {
  const plans = plansOf(call);
  const means = meansOf(call.conf, plans.length ? choose(call, plans) : backendOf(call.conf));
  const isAsked = ({ family }: Conditions) => plans.some(plan => plan.family === family);
  const conditions = means.backend === 'nftables' ? parseConditions(call.conf).filter(isAsked) : [];
  const owner = ownerOf(attachmentOf(call));
  return { owner, plans, means, conditions, refuseLiving: refuserFor(call), isGone: gravediggerFor(call) };
}

/** What forwards the ports now; where nothing is known, what the configuration says. */
function knownBackend(call: Call<PortmapConf>): Backend {
  const { backend, isFree } = choiceOf(call.conf);
  const [claim] = isFree ? findClaims(call.hostNft, ownerOf(attachmentOf(call))) : [];
  return claim?.backend ?? backend;
}

function plansOf(call: Call<PortmapConf>): FamilyPlan[] {
  validatePortmapConf(call.conf);
  const prevResult = requireResult(
    call,
    'Cannot map ports: the request has no "prevResult"; place this plugin after one that assigns addresses to the pod',
  );
  return planForwards(parsePortMappings(call.conf), prevResult, call.env.ifname);
}

/** A surviving flow is a nuisance; failing because of it would remove the mapping altogether. */
function forgetFlows(
  call: Call,
  plans: readonly FamilyPlan[],
  lost: readonly Lost[],
  protocols?: readonly Protocol[],
): void {
  try {
    forgetStaleFlows(call, plans, lost, protocols);
  } catch (thrown) {
    call.log.warn('stale flows may remain', { reason: (thrown as Error).message });
  }
}

/**
 * The packet filter of the configuration, unless another one leaves more to others. Rules of iptables that exempt connections, such as
 * kube-proxy's for the addresses of Services in its mode IPVS, hold for rules of iptables only. And iptables would run before
 * tables that were there first, such as kube-proxy's in its mode nftables.
 * @throws CniError 7 when the configuration needs iptables nevertheless
 */
function chooseBackend(call: Call<PortmapConf>, plans: readonly FamilyPlan[]): Backend {
  const { hostNft, log, conf } = call;
  const { backend, isFree } = choiceOf(conf);
  if (backend === 'iptables') {
    const table = plans.flatMap(({ family }) => findOvertaken(hostNft, family, 'destination') ?? [])[0];
    if (table === undefined) return backend;
    const why = `iptables would translate connections before table "${table}", which was there first`;
    if (isFree) {
      log.warn(`Host ports are forwarded by nftables: ${why}`);
      return 'nftables';
    }
    throw invalidConfig(`Cannot map host ports with iptables: ${why}`, {
      details: 'conditions in nft syntax and "backend": "nftables" leave to others what they translate',
    });
  }
  return isFree && plans.some(plan => isExempted(call, plan)) ? 'iptables' : backend;
}

function isExempted({ hostNft, log }: Call, plan: FamilyPlan): boolean {
  const { family, forwards } = plan;
  const isConcerned = ({ protocol, ports, destination }: NatRule): boolean =>
    forwards.some(
      ({ port, ip, ...one }) =>
        (!protocol || protocol === PROTOCOLS[one.protocol]) &&
        (!ports || ports.includes(port)) &&
        (!ip || !destination || cidrContains(destination.cidr, ip) !== destination.not),
    );
  const where = findExemption(hostNft, family, ['PREROUTING', 'OUTPUT'], isConcerned);
  if (where === undefined) return false;
  if (doProgramsChange(family, where)) return true;
  log.warn('iptables exempts connections, which host ports of nftables do not leave alone', {
    iptables: where,
  });
  return false;
}

/**
 * Claims host ports and has them forwarded.
 * @param onClaimed called once there is something to undo
 * @returns host ports that are now forwarded elsewhere, or no longer forwarded
 * @throws CniError 100 when another attachment holds a host port
 */
function applyPorts(
  nft: NetlinkSocket,
  wanted: WantedPorts,
  options: IptablesOptions,
  onClaimed: () => void,
): Lost[] {
  const { owner, plans, means } = wanted;
  const finish = ({ gone, chains, strangers }: Claimed): Lost[] => {
    onClaimed();
    return [
      ...gone,
      ...chains.flatMap(chain => removeIptablesPorts(nft, chain)),
      ...strangers.flatMap(({ containerId, pod }) => removeHostportRules(nft, containerId, [pod])),
    ];
  };
  if (means.backend === 'nftables') {
    const lost = finish(claimPatiently(nft, wanted));
    forwardInLegacy(plans.map(({ family }) => family));
    return lost;
  }
  return alone(() => {
    const lost = finish(claimPorts(nft, wanted, true));
    if (owner.attachment) addIptablesPorts(nft, plans, chainOwnerOf(nft, owner, owner.attachment), options);
    return lost;
  });
}

/**
 * Removes everything of an attachment, whichever plugin made it and with whichever packet filter.
 * @param pods its addresses on this network, which identify its rules in the reference's own table
 * @param onLost called with host ports that are no longer forwarded
 * @param planned how many claims it should have, 0 if that is not known: if some are missing, every element is read
 */
async function removePorts(
  nft: NetlinkSocket,
  owner: Owner,
  pods: readonly Ip[],
  onLost: (lost: readonly Lost[]) => void,
  planned = 0,
): Promise<void> {
  const { attachment } = owner;
  const tables = listTables(nft);
  const isKnown = tables.has(TABLE);
  const shared = attachment ? [attachment] : [];
  const chains = isKnown ? chainsOf(nft, owner) : shared;
  const mayBeTorn = isKnown && isKnownAt(nft, owner, pods);
  await tryAll([
    () => onLost(chains.flatMap(chain => removeIptablesPorts(nft, chain, tables))),
    // Rules first: a retry needs what the sets record.
    () => {
      const released = isKnown ? releasePorts(nft, owner) : [];
      onLost(released);
      const isTorn = () => (planned ? released.length < planned : isKnownAt(nft, owner, pods));
      if (mayBeTorn && isTorn()) sweepElements(nft, note => note === owner.note);
    },
    () => onLost(attachment ? removeHostportRules(nft, attachment.containerId, pods, tables) : []),
  ]);
}

/**
 * Removes everything of the network's attachments that GC does not keep, and what the reference left of containers that no longer
 * exist.
 * @param onLost called with host ports that are no longer forwarded
 */
async function sweepPorts(
  nft: NetlinkSocket,
  network: string,
  kept: KeptAttachments,
  onLost: (lost: readonly Lost[]) => void,
): Promise<void> {
  const isKept = (containerId: string) =>
    kept.some(one => one.containerId === containerId || soleOwner(one).containerId === containerId);
  await tryAll([
    ...findDead(nft, network, kept).map(owner => () => {
      const inIptables = findClaims(nft, owner).some(({ backend }) => backend === 'iptables');
      const own = inIptables ? chainsOf(nft, owner) : [];
      onLost(own.flatMap(chain => removeIptablesPorts(nft, chain)));
      onLost(releasePorts(nft, owner));
    }),
    () => sweepElements(nft, note => isStaleNote(note, network, kept)),
    () => sweepConditions(nft),
    () => onLost(sweepIptablesPorts(nft, network, isKept)),
    () => onLost(sweepHostportRules(nft, kept)),
  ]);
}

/** A holder without rules in iptables may be about to write them, so waiting for its turn to end is worthwhile. */
function claimPatiently(nft: NetlinkSocket, wanted: WantedPorts): Claimed {
  try {
    return claimPorts(nft, wanted, false);
  } catch (thrown) {
    if (!(thrown instanceof SuspectError)) throw thrown;
    return alone(() => claimPorts(nft, wanted, true));
  }
}

/** Serializes processes from the claim of ports to their iptables rules. */
function alone<T>(work: () => T): T {
  return inTurn(runDir(), 'portmap', work);
}
