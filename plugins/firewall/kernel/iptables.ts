// How are the rules of an attachment added to iptables, removed from it and checked?

import { FAMILIES, type Ip, sameIp } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import { filterTable, tryFilter } from '../../../src/netlink/iptables/filter.ts';
import { hasLegacyTable } from '../../../src/netlink/iptables/nat.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { hasChain } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import {
  CNI_FORWARD,
  ensureLines,
  type Inhabitants,
  leftoverLines,
  releaseLines,
  type Wanted,
} from '../iptables-rules.ts';
import type { AccessPlan, Claim } from '../plan.ts';

import { TALLY } from '../skeleton.ts';
import {
  familiesOf,
  presentTables,
  readTable,
  type TablePlace,
  tableChanges,
  toolOf,
  updateTable,
  wantedTables,
} from './tables.ts';

/** Which tables to use: `old` are those that are not held in nf_tables. */
export type WhichTables = 'all' | 'old';

/**
 * Adds what is missing for the attachment, to each table in one step.
 * @throws Error with the message of the kernel or the program
 */
export function ensureIptables(
  socket: NetlinkSocket,
  plan: AccessPlan,
  adminChain: string,
  which: WhichTables = 'all',
): void {
  for (const place of wantedTables(socket, plan.pods)) {
    if (which === 'old' && place.mode === 'nft') continue;
    const wanted = wantedIn(place, plan, adminChain);
    updateTable(socket, place, wanted, saved => ensureLines(saved, wanted));
  }
}

/**
 * The changes that add it to tables in nf_tables, for the transaction that adds the elements.
 * @param onRules called with addresses that already have rules
 */
export function iptablesChanges(
  socket: NetlinkSocket,
  plan: AccessPlan,
  adminChain: string,
  onRules: (pods: readonly Ip[]) => void,
): Request[] {
  return wantedTables(socket, plan.pods).flatMap(place => {
    if (place.mode !== 'nft') return [];
    const wanted = wantedIn(place, plan, adminChain);
    return tableChanges(socket, place, wanted, saved => {
      if (releaseLines(saved, wanted.pods, []).length) onRules(wanted.pods);
      return ensureLines(saved, wanted);
    });
  });
}

/** @throws Error naming the first line that ADD would add */
export function checkIptables(socket: NetlinkSocket, plan: AccessPlan, adminChain: string): void {
  for (const place of wantedTables(socket, plan.pods)) {
    const wanted = wantedIn(place, plan, adminChain);
    const lines = ensureLines(readTable(socket, place, wanted), wanted);
    const [line, ...more] = lines.filter(one => !one.startsWith('-D '));
    if (line === undefined) continue;
    const others = more.length ? ` and ${more.length} more` : '';
    throw new Error(`Cannot confirm rules of ${toolOf(place)}: the table "filter" lacks "${line}"${others}`);
  }
}

/**
 * Removes addresses, and interfaces that no longer need to be closed without them. Call before nf_tables forgets the owner, so
 * that a failure can be retried.
 * @param kept the next plan for the same pod: its addresses and its interface are kept
 */
export function releaseIptables(socket: NetlinkSocket, claims: readonly Claim[], kept?: AccessPlan): void {
  const pods = claims.map(({ pod }) => pod).filter(pod => !kept?.pods.some(one => sameIp(one, pod)));
  const homes = [...new Set(claims.flatMap(({ home }) => home ?? []))].filter(home => {
    const [count = 0] = (findElement(socket, TALLY, [home])?.data ?? []) as readonly number[];
    return (
      !(kept?.isNamed && home === kept.ingress?.home) &&
      count <= claims.filter(one => one.home === home).length
    );
  });
  if (pods.length + homes.length === 0) return;
  removeFromIptables(
    socket,
    FAMILIES.filter(family => claims.some(({ pod }) => pod.family === family)),
    pods,
    homes,
  );
}

/** Removes addresses that the reference added, if its chains exist. */
export function releaseForeignRules(socket: NetlinkSocket, pods: readonly Ip[]): void {
  removeFromIptables(socket, familiesOf(pods), pods, []);
}

/** Whether there are rules that accept packets of one of the addresses, whichever plugin wrote them. */
export function hasRulesFor(socket: NetlinkSocket, pods: readonly Ip[], which: WhichTables = 'all'): boolean {
  return presentTables(socket, familiesOf(pods)).some(place => {
    if (which === 'old' && place.mode === 'nft') return false;
    const own = pods.filter(({ family }) => family === place.family);
    return releaseLines(readTable(socket, place, { pods: own }), own, []).length > 0;
  });
}

/**
 * Removes what no pod needs any longer, if the reference's chains exist.
 * @param look tells which pods still exist; called only once that matters, while no other process of ours changes rules
 */
export function sweepIptables(socket: NetlinkSocket, look: () => Inhabitants): void {
  for (const place of presentTables(socket, FAMILIES)) {
    updateTable(socket, place, undefined, saved => leftoverLines(saved, look()));
  }
}

/**
 * Checks that every table that the addresses need can be read and changed.
 * @throws Error with the message of the program, or saying what the kernel lacks
 */
export function requireIptables(socket: NetlinkSocket, pods: readonly Ip[]): void {
  const places = wantedTables(socket, pods);
  for (const family of familiesOf(pods)) {
    if (places.some(place => place.family === family)) continue;
    throw new Error(
      `Cannot use iptables for IPv${family}: the kernel lacks features of nf_tables, or the table "filter" is foreign`,
    );
  }
}

/** Like {@link requireIptables}, for any pod, and as far as can be told without making changes. */
export function tryIptables(socket: NetlinkSocket): void {
  const pods: Ip[] = FAMILIES.map(family => ({ family, value: 1n }));
  requireIptables(socket, pods);
  for (const place of wantedTables(socket, pods)) {
    const wanted = { pods: pods.filter(({ family }) => family === place.family), adminChain: 'CNI-ADMIN' };
    const lines = ensureLines(readTable(socket, place, wanted), wanted);
    if (place.mode === 'nft') tryFilter(socket, place.family, lines);
  }
}

/** Whether iptables has the reference's chain for all IP versions of the pods. */
export function hasReferenceRules(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return familiesOf(pods).every(
    family => hasChain(socket, filterTable(family), CNI_FORWARD) || hasLegacyTable(family, 'filter'),
  );
}

function removeFromIptables(
  socket: NetlinkSocket,
  families: readonly (4 | 6)[],
  pods: readonly Ip[],
  bridges: readonly string[],
): void {
  for (const place of presentTables(socket, families)) {
    const own = pods.filter(pod => pod.family === place.family);
    updateTable(socket, place, { pods: own }, saved => releaseLines(saved, own, bridges));
  }
}

function wantedIn(
  { family }: TablePlace,
  { pods, ingress, isNamed, asReference = false }: AccessPlan,
  adminChain: string,
): Wanted {
  return {
    pods: pods.filter(pod => pod.family === family),
    adminChain,
    asReference,
    ...(ingress && isNamed ? { ingress } : {}),
  };
}
