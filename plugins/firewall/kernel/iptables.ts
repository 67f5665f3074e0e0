// How are the rules of an attachment added to iptables, removed from it and checked?

import { runDir } from '../../../src/cni/directories.ts';
import { FAMILIES, type Family, findIp, hostCidr, type Ip, renderCidr, sameIp } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  canUseFilter,
  filterChanges,
  filterTable,
  isFilterDropping,
  isFilterOfIptables,
  readFilter,
  tryFilter,
} from '../../../src/netlink/iptables/filter.ts';
import { hasLegacyTable, isLegacyDropping } from '../../../src/netlink/iptables/nat.ts';
import {
  doProgramsChange,
  hasLegacyTools,
  inTurn,
  restoreTable,
  type SavedTable,
  saveTable,
} from '../../../src/netlink/iptables/program.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import { hasChain } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { ADMIN_CHAIN, CNI_FORWARD, STAGES } from '../config.ts';
import { type AccessPlan, type Claim, type Ingress, TALLY } from '../plan.ts';

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
    commitAfterReading(socket, () => filterChanges(socket, family, extractFor(concern), decide));
    return;
  }
  inTurn(runDir(), 'firewall', () => {
    const lines = decide(saveTable(family, 'filter', mode));
    if (lines.length) restoreTable(family, 'filter', lines, mode);
  });
}

/**
 * Whether iptables, which must accept a packet too, drops by default, in nf_tables or in legacy iptables.
 * Same as: `iptables -S FORWARD` or `iptables-legacy -S FORWARD` beginning with `-P FORWARD DROP`
 */
export function doesIptablesDrop(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return familiesOf(pods).some(family => isFilterDropping(socket, family) || isLegacyDropping(family));
}

/** The IP versions of the addresses. */
function familiesOf(pods: readonly Ip[]): Family[] {
  return FAMILIES.filter(family => pods.some(pod => pod.family === family));
}

/** If no program is installed, one that is installed later will use nf_tables. */
function tablesOf(socket: NetlinkSocket, family: Family): TablePlace[] {
  if (doProgramsChange(family, 'legacy')) {
    const isBoth = hasChain(socket, filterTable(family), CNI_FORWARD);
    return [{ family, mode: 'any' }, ...(isBoth ? [{ family, mode: 'nft' as const }] : [])];
  }
  const hasOld = hasLegacyTable(family, 'filter') && hasLegacyTools(family);
  return [{ family, mode: 'nft' }, ...(hasOld ? [{ family, mode: 'legacy' as const }] : [])];
}

/** A foreign table with that name is not iptables', and a kernel may lack what iptables needs in nf_tables. */
function isUsable(socket: NetlinkSocket, { family, mode }: TablePlace): boolean {
  if (mode !== 'nft' || hasChain(socket, filterTable(family), CNI_FORWARD)) return true;
  const pod: Ip = { family, value: 1n };
  const trial = ensureLines({ chains: [], rules: [] }, { pods: [pod], adminChain: ADMIN_CHAIN });
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
    return filterChanges(socket, place.family, extractFor(wanted), saved => {
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
    const tool = `ip${place.family === 4 ? '' : '6'}tables${place.mode === 'legacy' ? '-legacy' : ''}`;
    throw new Error(`Cannot confirm rules of ${tool}: the table "filter" lacks "${line}"${others}`);
  }
}

/**
 * Removes addresses, and interfaces that no longer need to be closed without them. Call before nf_tables forgets the owner, so
 * that a failure can be retried.
 * @param kept the next plan for the same pod: its addresses and its interface are kept
 */
export function releaseIptables(socket: NetlinkSocket, claims: readonly Claim[], kept?: AccessPlan): void {
  const pods = claims.map(({ pod }) => pod).filter(pod => !kept?.pods.some(one => sameIp(one, pod)));
  // Counted while the rules are read: another pod may have come behind the interface.
  const homesOf = () =>
    [...new Set(claims.flatMap(({ home }) => home ?? []))].filter(home => {
      const [count = 0] = (findElement(socket, TALLY, [home])?.data ?? []) as readonly number[];
      return (
        !(kept?.isNamed && home === kept.ingress?.home) &&
        count <= claims.filter(one => one.home === home).length
      );
    });
  if (pods.length + homesOf().length === 0) return;
  removeFromIptables(socket, familiesOf(claims.map(({ pod }) => pod)), pods, homesOf);
}

/** Removes addresses that the reference added, if its chains exist. */
export function releaseForeignRules(socket: NetlinkSocket, pods: readonly Ip[]): void {
  removeFromIptables(socket, familiesOf(pods), pods);
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
    const wanted = { pods: pods.filter(({ family }) => family === place.family), adminChain: ADMIN_CHAIN };
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
  families: readonly Family[],
  pods: readonly Ip[],
  homesOf: () => readonly string[] = () => [],
): void {
  for (const place of presentTables(socket, families)) {
    const own = pods.filter(pod => pod.family === place.family);
    updateTable(socket, place, { pods: own }, saved => releaseLines(saved, own, homesOf()));
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

// Which lines create the reference's chains, and which remove an attachment from them? Nothing is run from here on.

const [STAGE_1, STAGE_2] = STAGES;
/** The comment of the rule that jumps to the operator's chain. */
const ADMIN_WORDS = 'CNI firewall plugin admin overrides';

const comment = (words: string) => `-m comment --comment "${words}"`;
const RULES = 'CNI firewall plugin rules';
const FORWARD_JUMP = `FORWARD ${comment(RULES)} -j ${CNI_FORWARD}`;
const SHARED = comment(`${RULES} (ingressPolicy: same-bridge|isolated)`);

const POD_RULE = new RegExp(
  `^${CNI_FORWARD} (?:-s (\\S+)/(?:32|128)|-d (\\S+)/(?:32|128) -m conntrack --ctstate DNAT) -j ACCEPT$`,
);
const BRIDGE_RULE = new RegExp(`^(?:${STAGE_1} -i|${STAGE_2} -o) (\\S+) `);

/** Input of {@link ensureLines}. */
interface WantedRules {
  readonly pods: readonly Ip[];
  readonly ingress?: Pick<Ingress, 'home' | 'policy'>;
  readonly adminChain: string;
  /** The rules are to be the reference's alone, which its DEL removes. */
  readonly asReference?: boolean;
}

/** The missing lines of an attachment, in order; empty when all exist. */
export function ensureLines(
  saved: SavedTable,
  { pods, ingress, adminChain, asReference = false }: WantedRules,
): string[] {
  const chains = [CNI_FORWARD, adminChain, ...(ingress ? [STAGE_1, STAGE_2] : [])];
  const has = (rule: string) => saved.rules.includes(rule);
  const admin = `${comment(ADMIN_WORDS)} -j ${adminChain}`;
  return [
    ...chains.filter(name => !saved.chains.includes(name)).map(name => `-N ${name}`),
    ...(has(`${CNI_FORWARD} ${admin}`) ? [] : [`-I ${CNI_FORWARD} 1 ${admin}`]),
    ...pods
      .flatMap(asReference ? referenceRules : podRules)
      .filter(rule => !has(rule))
      .map(rule => `-A ${rule}`),
    ...(asReference ? pods.map(publishedRule).filter(has) : []).map(rule => `-D ${rule}`),
    ...(has(FORWARD_JUMP) ? [] : [insertFirst(FORWARD_JUMP)]),
    ...(ingress ? ingressLines(saved, ingress) : []),
  ];
}

/** The lines that remove addresses, and interfaces that no longer have a pod behind them that is not open. */
export function releaseLines(saved: SavedTable, pods: readonly Ip[], bridges: readonly string[]): string[] {
  const own = new Set(pods.flatMap(podRules));
  const places = bridges.flatMap(name => [`${STAGE_1} -i ${name} `, `${STAGE_2} -o ${name} `]);
  return saved.rules
    .filter(rule => own.has(rule) || places.some(place => rule.startsWith(place)))
    .map(rule => `-D ${rule}`);
}

/** Which pods still exist, as far as the host can tell. */
interface Inhabitants {
  hasPod(ip: Ip): boolean;
  /** Whether any pod is behind an interface of the host. */
  hasPods(ifname: string): boolean;
}

/** The lines that remove pods and interfaces that no longer exist. Rules that an operator wrote by hand do not match. */
function leftoverLines(saved: SavedTable, { hasPod, hasPods }: Inhabitants): string[] {
  const pods = saved.rules.flatMap(rule => {
    const [, source, destination] = POD_RULE.exec(rule) ?? [];
    const ip = findIp(source ?? destination ?? '');
    if (ip === undefined || hasPod(ip)) return [];
    // An operator may accept an address as well. Ours may stay after the reference's DEL, which does not know it.
    return destination || referenceRules(ip).every(one => saved.rules.includes(one)) ? [ip] : [];
  });
  const bridges = saved.rules.flatMap(rule => {
    const name = BRIDGE_RULE.exec(rule)?.[1];
    return name !== undefined && !hasPods(name) ? [name] : [];
  });
  return pods.length + bridges.length === 0 ? [] : releaseLines(saved, pods, bridges);
}

/** The reference's rules, which accept what the pod sends, and the answers. */
function referenceRules(ip: Ip): string[] {
  return [
    `${CNI_FORWARD} -d ${addressOf(ip)} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
    `${CNI_FORWARD} -s ${addressOf(ip)} -j ACCEPT`,
  ];
}

/** Accepts connections to ports of the host that lead to the pod, whichever program publishes them. */
function publishedRule(ip: Ip): string {
  return `${CNI_FORWARD} -d ${addressOf(ip)} -m conntrack --ctstate DNAT -j ACCEPT`;
}

function podRules(ip: Ip): string[] {
  return [...referenceRules(ip), publishedRule(ip)];
}

function addressOf(ip: Ip): string {
  return renderCidr(hostCidr(ip));
}

/** Releases of the reference differ in the comments of shared rules, so a rule is recognized by its match and target. */
function ingressLines(saved: SavedTable, { home, policy }: NonNullable<WantedRules['ingress']>): string[] {
  const find = (start: string, end: string) =>
    saved.rules.find(rule => rule.startsWith(`${start} `) && rule.endsWith(`-j ${end}`));
  const words = (own: string) => comment(`${RULES} (ingressPolicy: ${own})`);
  const unless = (found: string | undefined, line: string) => (found === undefined ? [line] : []);
  const within = `${STAGE_1} -i ${home} -o ${home}`;
  const beyond = `${STAGE_1} -i ${home} ! -o ${home}`;
  return [
    ...unless(find(`${STAGE_2} -o ${home}`, 'DROP'), `-I ${STAGE_2} 1 -o ${home} ${SHARED} -j DROP`),
    ...unless(findReturn(saved, STAGE_2), `-A ${STAGE_2} ${SHARED} -j RETURN`),
    ...unless(find(beyond, STAGE_2), insertFirst(`${beyond} ${words('same-bridge')} -j ${STAGE_2}`)),
    ...(policy === 'isolated'
      ? unless(find(within, 'DROP'), insertFirst(`${within} ${words('isolated')} -j DROP`))
      : []),
    ...unless(findReturn(saved, STAGE_1), `-A ${STAGE_1} ${SHARED} -j RETURN`),
    ...stageJumpLines(saved, find('FORWARD', STAGE_1)),
  ];
}

/** Packets must pass the rules that drop before those that accept. */
function stageJumpLines({ rules }: SavedTable, found: string | undefined): string[] {
  const accepting = rules.indexOf(FORWARD_JUMP);
  if (found !== undefined && accepting >= 0 && rules.indexOf(found) < accepting) return [];
  return [
    ...(found === undefined ? [] : [`-D ${found}`]),
    insertFirst(found ?? `FORWARD ${SHARED} -j ${STAGE_1}`),
  ];
}

function findReturn({ rules }: SavedTable, chain: string): string | undefined {
  return rules.find(rule => rule.startsWith(`${chain} -m comment `) && rule.endsWith('-j RETURN'));
}

function insertFirst(rule: string): string {
  const space = rule.indexOf(' ');
  return `-I ${rule.slice(0, space)} 1${rule.slice(space)}`;
}
