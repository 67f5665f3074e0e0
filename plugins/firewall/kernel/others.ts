// Which packet filters of the host have to let a packet pass besides nf_tables, and how are they told?
import type { FilterOwner } from '../../../src/attach/handle.ts';
import { type Ip, sameIp } from '../../../src/net/ip.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { FirewallOptions, Other } from '../config.ts';
import {
  addSources,
  checkSources,
  isFirewalldRunning,
  removeForeignSources,
  removeSources,
  requireUnclaimed,
  requireZone,
} from '../firewalld/sources.ts';
import type { AccessPlan } from '../plan.ts';
import {
  checkIptables,
  doesIptablesDrop,
  ensureIptables,
  hasIptables,
  hasReferenceRules,
  releaseForeignRules,
  releaseIptables,
} from './iptables.ts';
import { findClaimsIn, isKnown } from './release.ts';

/** Names for chains and zones, as configured. */
export type Names = Pick<FirewallOptions, 'adminChain' | 'zone'>;

/** Those that drop what they were not told of, for pods of whom nobody said which to use. */
export async function findOthers(socket: NetlinkSocket, pods: readonly Ip[]): Promise<Other[]> {
  if (pods.length === 0) return [];
  const iptables = doesIptablesDrop(socket, pods) && hasIptables(pods);
  return [
    ...(iptables ? (['iptables'] as const) : []),
    ...((await isFirewalldRunning(socket)) ? (['firewalld'] as const) : []),
  ];
}

/** Refuses names that the others do not know, before anything is touched. */
export async function requireOthers({ others }: AccessPlan, { zone }: Names): Promise<void> {
  if (others.includes('firewalld')) await requireZone(zone);
}

/** Lets the pod pass there; to be called when nf_tables remembers that they know of it. */
export async function tellOthers(plan: AccessPlan, { adminChain, zone }: Names): Promise<void> {
  if (plan.others.includes('iptables')) ensureIptables(plan, adminChain);
  if (plan.others.includes('firewalld')) await addSources(zone, plan.pods);
}

/** @throws Error naming what one of them lacks */
export async function checkOthers(plan: AccessPlan, { adminChain, zone }: Names): Promise<void> {
  if (plan.others.includes('iptables')) checkIptables(plan, adminChain);
  if (plan.others.includes('firewalld')) await checkSources(zone, plan.pods);
}

/**
 * Whether the reference has told one of them of the pods, all that it tells: then they pass although nf_tables does not know
 * of them. It has no rules there, so that one of the others is all that it may have told.
 */
export async function isToldByReference(
  socket: NetlinkSocket,
  plan: AccessPlan,
  { adminChain, zone }: Names,
): Promise<boolean> {
  if (isKnown(socket, plan.pods)) return false;
  const hasZones = plan.others.includes('firewalld');
  if (!hasZones && !hasReferenceRules(socket, plan.pods)) return false;
  try {
    if (hasZones) await checkSources(zone, plan.pods);
    else checkIptables(plan, adminChain);
    return true;
  } catch {
    return false;
  }
}

/** What comes for the same pod, so that what it needs stays. */
export interface Next {
  readonly plan: AccessPlan;
  readonly names: Names;
}

/**
 * Has them forget attachments; before nf_tables does, so that a failure can be tried again.
 * @throws Error when what comes next would take an address from somebody else
 */
export async function haveOthersForget(
  socket: NetlinkSocket,
  owners: readonly FilterOwner[],
  next?: Next,
): Promise<void> {
  const { plan, names } = next ?? {};
  const rules = findClaimsIn(socket, 'iptables', owners);
  releaseIptables(socket, rules, plan?.others.includes('iptables') ? plan : undefined);
  const sources = findClaimsIn(socket, 'firewalld', owners).map(({ pod }) => pod);
  const kept = plan?.others.includes('firewalld') ? plan.pods : [];
  await removeSources(sources, (zone, pod) => zone !== names?.zone || !kept.some(one => sameIp(one, pod)));
  if (names && kept.length) await requireUnclaimed(names.zone, kept);
}

/** Has them forget addresses that the reference told them of. */
export async function forgetForeign(socket: NetlinkSocket, pods: readonly Ip[], zone: string): Promise<void> {
  releaseForeignRules(socket, pods);
  await removeForeignSources(socket, pods, zone);
}
