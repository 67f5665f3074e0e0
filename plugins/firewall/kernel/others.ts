// Which packet filters of the host, besides nf_tables, must accept a packet, and how are they told?
import type { FilterOwner } from '../../../src/attach/owner.ts';
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
  ensureIptables,
  hasReferenceRules,
  releaseForeignRules,
  releaseIptables,
  requireIptables,
  type WhichTables,
} from './iptables.ts';
import { findClaimsIn, isKnown } from './release.ts';
import { doesIptablesDrop, wantedTables } from './tables.ts';

/** Names of chains and zones, as configured. */
export type Names = Pick<FirewallOptions, 'adminChain' | 'zone'>;

/**
 * The packet filters to inform when no backend is configured: iptables in any case, since Docker, ufw or an operator may set its
 * policy to DROP at any later time, and firewalld if it is running.
 */
export async function findOthers(socket: NetlinkSocket, pods: readonly Ip[]): Promise<Other[]> {
  if (pods.length === 0) return [];
  const iptables = wantedTables(socket, pods).length > 0;
  return [
    ...(iptables ? (['iptables'] as const) : []),
    ...((await isFirewalldRunning(socket)) ? (['firewalld'] as const) : []),
  ];
}

/**
 * Those of {@link findOthers} that CHECK looks at: attachments made by an earlier release have iptables rules only if iptables
 * dropped packets at that time, and lack nothing as long as it does not drop now.
 */
export async function findOthersToCheck(
  socket: NetlinkSocket,
  pods: readonly Ip[],
  owner: FilterOwner,
): Promise<Other[]> {
  const others = await findOthers(socket, pods);
  const isNeeded =
    !isKnown(socket, pods) ||
    findClaimsIn(socket, 'iptables', [owner]).length > 0 ||
    doesIptablesDrop(socket, pods);
  return others.filter(other => other !== 'iptables' || isNeeded);
}

/** Rejects unknown names and missing packet filters, before anything is changed. */
export async function requireOthers(
  socket: NetlinkSocket,
  { others, isNamed, pods }: AccessPlan,
  { zone }: Names,
): Promise<void> {
  if (isNamed && others.includes('iptables')) requireIptables(socket, pods);
  if (others.includes('firewalld')) await requireZone(zone);
}

/**
 * Makes the other packet filters accept the pod's packets. Call after nf_tables has recorded that they will know the pod.
 * @param which `old` if `admit` has already informed those in nf_tables
 */
export async function tellOthers(
  socket: NetlinkSocket,
  plan: AccessPlan,
  { adminChain, zone }: Names,
  which: WhichTables = 'all',
): Promise<void> {
  if (plan.others.includes('iptables')) ensureIptables(socket, plan, adminChain, which);
  if (plan.others.includes('firewalld')) await addSources(zone, plan.pods);
}

/** @throws Error naming what one of them lacks */
export async function checkOthers(
  socket: NetlinkSocket,
  plan: AccessPlan,
  { adminChain, zone }: Names,
): Promise<void> {
  if (plan.others.includes('iptables')) checkIptables(socket, plan, adminChain);
  if (plan.others.includes('firewalld')) await checkSources(zone, plan.pods);
}

/**
 * Whether the reference has told another packet filter everything about the pods: then their packets pass although nf_tables does
 * not know them. The reference has no rules in nf_tables, so this is all that it may have done.
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
    // Its rules are the only ones that enforce the policy.
    else checkIptables(socket, { ...plan, isNamed: true, asReference: true }, adminChain);
    return true;
  } catch {
    return false;
  }
}

/** The next plan for the same pod: whatever it needs is kept. */
export interface Next {
  readonly plan: AccessPlan;
  readonly names: Names;
}

/**
 * Makes them forget attachments. Call before nf_tables forgets them, so that a failure can be retried.
 * @throws Error when the next plan would take an address from another zone
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

/** Makes them forget addresses that the reference told them about. */
export async function forgetForeign(socket: NetlinkSocket, pods: readonly Ip[], zone: string): Promise<void> {
  releaseForeignRules(socket, pods);
  await removeForeignSources(socket, pods, zone);
}
