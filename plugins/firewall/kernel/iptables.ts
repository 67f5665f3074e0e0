// How are the rules of an attachment added to iptables, removed from it and checked?

import { runDir } from '../../../src/cni/directories.ts';
import { FAMILIES, type Family, type Ip, sameIp } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  canUseFilter,
  filterChanges,
  filterTable,
  isFilterOfIptables,
  readFilter,
  tryFilter,
} from '../../../src/netlink/iptables/filter.ts';
import { hasLegacyTable, isLegacyDropping } from '../../../src/netlink/iptables/nat.ts';
import {
  hasLegacyTools,
  inTurn,
  restoreMode,
  restoreTable,
  type SavedTable,
  saveTable,
} from '../../../src/netlink/iptables/program.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import { hasChain, isDropping } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import {
  ADMIN_WORDS,
  CNI_FORWARD,
  ensureLines,
  type Inhabitants,
  leftoverLines,
  releaseLines,
  STAGES,
  type WantedRules,
} from '../iptables-rules.ts';
import { type AccessPlan, type Claim, TALLY } from '../plan.ts';

/**
 * A "filter" table of one IP version. `nft`: the one that iptables keeps in nf_tables, which needs no program. `any`: the table
 * of the installed program, which is legacy iptables; `legacy`: the legacy table, used in addition to the one in nf_tables.
 */
interface TablePlace {
  readonly family: Family;
  readonly mode: 'nft' | 'any' | 'legacy';
}

/** The relevant part of a table; a large one is not read as a whole for one pod. */
interface Concern {
  readonly pods: readonly Ip[];
  readonly adminChain?: string;
}

/** Where a pod needs rules: wherever iptables handles packets, now or after a policy has been set. */
export function wantedTables(socket: NetlinkSocket, pods: readonly Ip[]): TablePlace[] {
  return familiesOf(pods).flatMap(family =>
    tablesOf(socket, family).filter(place => isUsable(socket, place)),
  );
}

/** Where rules may exist. */
function presentTables(socket: NetlinkSocket, families: readonly Family[]): TablePlace[] {
  return families.flatMap(family =>
    tablesOf(socket, family).filter(({ mode }) =>
      mode === 'nft' ? hasChain(socket, filterTable(family), CNI_FORWARD) : hasLegacyTable(family, 'filter'),
    ),
  );
}

/** Reads the relevant part of a table, or all of it. */
function readTable(socket: NetlinkSocket, place: TablePlace, concern?: Concern): SavedTable {
  if (place.mode === 'nft') return readFilter(socket, place.family, extractFor(concern));
  return saveTable(place.family, 'filter', place.mode);
}

/**
 * Reads a table, decides about lines and applies them: atomically in nf_tables; with programs, serialized among the calls of this
 * plugin.
 * @throws Error with the message of the kernel or the program
 */
function updateTable(
  socket: NetlinkSocket,
  place: TablePlace,
  concern: Concern | undefined,
  decide: (saved: SavedTable) => readonly string[],
): void {
  const { family, mode } = place;
  if (mode === 'nft') {
    commitAfterReading(socket, () => tableChanges(socket, place, concern, decide));
    return;
  }
  inTurn(runDir(), 'firewall', () => {
    const lines = decide(saveTable(family, 'filter', mode));
    if (lines.length) restoreTable(family, 'filter', lines, mode);
  });
}

/** The changes of {@link updateTable} to a table in nf_tables, for a larger transaction. Call within `commitAfterReading`. */
function tableChanges(
  socket: NetlinkSocket,
  { family }: TablePlace,
  concern: Concern | undefined,
  decide: (saved: SavedTable) => readonly string[],
): Request[] {
  return filterChanges(socket, family, extractFor(concern), decide);
}

/**
 * Whether iptables, which must accept a packet too, drops by default, in nf_tables or in legacy iptables.
 * Same as: `iptables -S FORWARD` or `iptables-legacy -S FORWARD` beginning with `-P FORWARD DROP`
 */
export function doesIptablesDrop(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return familiesOf(pods).some(
    family =>
      isDropping(socket, filterTable(family), 'FORWARD') || isLegacyDropping(family, 'filter', 'FORWARD'),
  );
}

/** The name of the tool that shows a table. */
function toolOf({ family, mode }: TablePlace): string {
  return `ip${family === 4 ? '' : '6'}tables${mode === 'legacy' ? '-legacy' : ''}`;
}

/** The IP versions of the addresses. */
function familiesOf(pods: readonly Ip[]): Family[] {
  return FAMILIES.filter(family => pods.some(pod => pod.family === family));
}

/** If no program is installed, one that is installed later will use nf_tables. */
function tablesOf(socket: NetlinkSocket, family: Family): TablePlace[] {
  if (modeOf(family) === 'legacy') {
    const isBoth = hasChain(socket, filterTable(family), CNI_FORWARD);
    return [{ family, mode: 'any' }, ...(isBoth ? [{ family, mode: 'nft' as const }] : [])];
  }
  const hasOld = hasLegacyTable(family, 'filter') && hasLegacyTools(family);
  return [{ family, mode: 'nft' }, ...(hasOld ? [{ family, mode: 'legacy' as const }] : [])];
}

function modeOf(family: Family): 'nft' | 'legacy' {
  try {
    return restoreMode(family);
  } catch {
    return 'nft';
  }
}

/** A foreign table with that name is not iptables', and a kernel may lack what iptables needs in nf_tables. */
function isUsable(socket: NetlinkSocket, { family, mode }: TablePlace): boolean {
  if (mode !== 'nft' || hasChain(socket, filterTable(family), CNI_FORWARD)) return true;
  const pod: Ip = { family, value: 1n };
  const trial = ensureLines({ chains: [], rules: [] }, { pods: [pod], adminChain: 'CNI-ADMIN' });
  return isFilterOfIptables(socket, family) && canUseFilter(socket, family, trial);
}

function extractFor(concern: Concern | undefined) {
  if (concern === undefined) return {};
  const { pods, adminChain } = concern;
  const chains = [CNI_FORWARD, ...STAGES, ...(adminChain === undefined ? [] : [adminChain])];
  return { chains, only: { chain: CNI_FORWARD, ips: pods, text: ADMIN_WORDS } };
}

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
): WantedRules {
  return {
    pods: pods.filter(pod => pod.family === family),
    adminChain,
    asReference,
    ...(ingress && isNamed ? { ingress } : {}),
  };
}
