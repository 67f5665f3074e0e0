// Which "filter" tables does iptables have here, and how is each of them read and changed?

import { runDir } from '../../../src/cni/directories.ts';
import { FAMILIES, type Family, type Ip } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  canUseFilter,
  filterChanges,
  filterTable,
  isFilterOfIptables,
  readFilter,
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
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import { hasChain, isDropping } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { ADMIN_WORDS, CNI_FORWARD, ensureLines, STAGES } from '../iptables-rules.ts';

/**
 * A "filter" table of one IP version. `nft`: the one that iptables keeps in nf_tables, which needs no program. `any`: the table
 * of the installed program, which is legacy iptables; `legacy`: the legacy table, used in addition to the one in nf_tables.
 */
export interface TablePlace {
  readonly family: Family;
  readonly mode: 'nft' | 'any' | 'legacy';
}

/** The relevant part of a table; a large one is not read as a whole for one pod. */
export interface Concern {
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
export function presentTables(socket: NetlinkSocket, families: readonly Family[]): TablePlace[] {
  return families.flatMap(family =>
    tablesOf(socket, family).filter(({ mode }) =>
      mode === 'nft' ? hasChain(socket, filterTable(family), CNI_FORWARD) : hasLegacyTable(family, 'filter'),
    ),
  );
}

/** Reads the relevant part of a table, or all of it. */
export function readTable(socket: NetlinkSocket, place: TablePlace, concern?: Concern): SavedTable {
  if (place.mode === 'nft') return readFilter(socket, place.family, extractFor(concern));
  return saveTable(place.family, 'filter', place.mode);
}

/**
 * Reads a table, decides about lines and applies them: atomically in nf_tables; with programs, serialized among the calls of this
 * plugin.
 * @throws Error with the message of the kernel or the program
 */
export function updateTable(
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
export function tableChanges(
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
export function toolOf({ family, mode }: TablePlace): string {
  return `ip${family === 4 ? '' : '6'}tables${mode === 'legacy' ? '-legacy' : ''}`;
}

/** The IP versions of the addresses. */
export function familiesOf(pods: readonly Ip[]): Family[] {
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
