// How do the rules of an attachment get into iptables, out of it, and are they there?
import { runDir } from '../../../src/cni/directories.ts';
import { type Ip, sameIp } from '../../../src/net/ip.ts';
import { hasLegacyTable, isLegacyDropping } from '../../../src/netlink/iptables/legacy-table.ts';
import { hasLegacyTools } from '../../../src/netlink/iptables/mode.ts';
import { getRestore, type IptablesMode, restoreTable } from '../../../src/netlink/iptables/restore.ts';
import { type SavedTable, saveTable } from '../../../src/netlink/iptables/save.ts';
import { inTurn } from '../../../src/netlink/iptables/turn.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import type { Table } from '../../../src/netlink/nft/message.ts';
import { hasChain, isDropping } from '../../../src/netlink/nft/policy.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Claim } from '../elements.ts';
import {
  CNI_FORWARD,
  ensureLines,
  type Inhabitants,
  leftoverLines,
  releaseLines,
} from '../iptables-rules.ts';
import type { AccessPlan } from '../plan.ts';
import { TALLY } from '../skeleton.ts';

const FAMILIES = [4, 6] as const;

/** A table "filter" that iptables knows: of an IP version, in the packet filter that it uses now, or in the old one. */
interface Place {
  readonly family: 4 | 6;
  readonly mode: IptablesMode;
}

/**
 * Adds what is missing for the attachment, with two programs for each table.
 * @throws Error with the words of the program
 */
export function ensureIptables(plan: AccessPlan, adminChain: string): void {
  inTurn(runDir(), 'firewall', () => {
    for (const { place, wanted } of wantedPlaces(plan, adminChain)) {
      change(place, ensureLines(save(place), wanted));
    }
  });
}

/** @throws Error naming the first line that ADD would add */
export function checkIptables(plan: AccessPlan, adminChain: string): void {
  for (const { place, wanted } of wantedPlaces(plan, adminChain)) {
    const [line, ...more] = ensureLines(save(place), wanted);
    if (line === undefined) continue;
    const others = more.length ? ` and ${more.length} more` : '';
    throw new Error(`Cannot confirm rules of ${toolOf(place)}: the table "filter" lacks "${line}"${others}`);
  }
}

/**
 * Takes addresses out, and interfaces that nobody needs closed without them. Before nf_tables forgets whose they are, so
 * that a failure can be tried again.
 * @param kept what comes next for the same pod: its addresses and its interface stay
 */
export function releaseIptables(socket: NetlinkSocket, claims: readonly Claim[], kept?: AccessPlan): void {
  const pods = claims.map(({ pod }) => pod).filter(pod => !kept?.pods.some(one => sameIp(one, pod)));
  const bridges = [...new Set(claims.flatMap(({ bridge }) => bridge ?? []))].filter(bridge => {
    const [count = 0] = (findElement(socket, TALLY, [bridge])?.data ?? []) as readonly number[];
    return bridge !== kept?.ingress?.bridge && count <= claims.filter(one => one.bridge === bridge).length;
  });
  if (pods.length + bridges.length === 0) return;
  removeFromIptables(
    FAMILIES.filter(family => claims.some(({ pod }) => pod.family === family)),
    pods,
    bridges,
  );
}

/** Takes out addresses that the reference added, if there is anything of its kind. */
export function releaseForeignRules(socket: NetlinkSocket, pods: readonly Ip[]): void {
  const families = familiesOf(pods).filter(family => hasTable(socket, family));
  if (families.length) removeFromIptables(families, pods, []);
}

/**
 * Takes out what nobody needs any more, if there is anything of the reference's kind.
 * @param look tells who is still there, once that matters; nobody else of ours changes rules meanwhile
 */
export function sweepIptables(socket: NetlinkSocket, look: () => Inhabitants): void {
  const families = FAMILIES.filter(family => hasTable(socket, family));
  if (families.length === 0) return;
  inTurn(runDir(), 'firewall', () => {
    const inhabitants = look();
    for (const place of families.flatMap(presentPlaces)) {
      change(place, leftoverLines(save(place), inhabitants));
    }
  });
}

/**
 * Makes sure that the programs are there and may read the table.
 * @throws Error with the words of the program, or when it is missing
 */
export function tryIptables(): void {
  for (const family of FAMILIES) {
    getRestore(family);
    save({ family, mode: 'any' });
  }
}

/** Whether the programs for the pods' IP versions are installed. */
export function hasIptables(pods: readonly Ip[]): boolean {
  try {
    for (const family of familiesOf(pods)) getRestore(family);
    return true;
  } catch {
    return false;
  }
}

/**
 * Whether iptables, which must accept a packet too, drops what it is not told to accept, be it with nf_tables or with the
 * old packet filter.
 * Same as: `iptables -S FORWARD` or `iptables-legacy -S FORWARD` beginning with `-P FORWARD DROP`
 */
export function doesIptablesDrop(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return familiesOf(pods).some(
    family =>
      isDropping(socket, { table: filterTable(family), chain: 'FORWARD' }) ||
      isLegacyDropping(family, 'filter', 'FORWARD'),
  );
}

/** Whether iptables has the chain of the reference for all IP versions of the pods. */
export function hasReferenceRules(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return familiesOf(pods).every(family => hasTable(socket, family));
}

/** Asking iptables itself would start a program, and make the table. */
function hasTable(socket: NetlinkSocket, family: 4 | 6): boolean {
  return (
    hasChain(socket, { table: filterTable(family), chain: CNI_FORWARD }) || hasLegacyTable(family, 'filter')
  );
}

function removeFromIptables(
  families: readonly (4 | 6)[],
  pods: readonly Ip[],
  bridges: readonly string[],
): void {
  inTurn(runDir(), 'firewall', () => {
    for (const place of families.flatMap(presentPlaces)) {
      const own = pods.filter(pod => pod.family === place.family);
      change(place, releaseLines(save(place), own, bridges));
    }
  });
}

/** Where rules are needed: the old packet filter is left alone unless it drops by itself. */
function wantedPlaces({ pods, ingress }: AccessPlan, adminChain: string) {
  return familiesOf(pods).flatMap(family => {
    const wanted = {
      pods: pods.filter(pod => pod.family === family),
      adminChain,
      ...(ingress ? { ingress } : {}),
    };
    const isOldOne = isLegacyDropping(family, 'filter', 'FORWARD') && hasLegacyTools(family);
    return modes(isOldOne).map(mode => ({ place: { family, mode }, wanted }));
  });
}

/** Where rules may be. */
function presentPlaces(family: 4 | 6): Place[] {
  const isOldOne = hasLegacyTable(family, 'filter') && hasLegacyTools(family);
  return modes(isOldOne).map(mode => ({ family, mode }));
}

function modes(isOldOne: boolean): IptablesMode[] {
  return isOldOne ? ['any', 'legacy'] : ['any'];
}

function familiesOf(pods: readonly Ip[]): (4 | 6)[] {
  return FAMILIES.filter(family => pods.some(pod => pod.family === family));
}

function filterTable(family: 4 | 6): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'filter' };
}

function toolOf({ family, mode }: Place): string {
  return `ip${family === 4 ? '' : '6'}tables${mode === 'legacy' ? '-legacy' : ''}`;
}

function save({ family, mode }: Place): SavedTable {
  return saveTable(family, 'filter', mode);
}

function change({ family, mode }: Place, lines: readonly string[]): void {
  if (lines.length) restoreTable(family, 'filter', lines, mode);
}
