// How do the rules of an attachment get into iptables, out of it, and are they there?
import { readFileSync } from 'node:fs';
import { runDir } from '../../../src/cni/directories.ts';
import { type Ip, sameIp } from '../../../src/net/ip.ts';
import { getRestore, restoreTable } from '../../../src/netlink/iptables/restore.ts';
import { saveTable } from '../../../src/netlink/iptables/save.ts';
import { inTurn } from '../../../src/netlink/iptables/turn.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import type { Table } from '../../../src/netlink/nft/message.ts';
import { hasChain, isDropping } from '../../../src/netlink/nft/policy.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Claim } from '../elements.ts';
import { CNI_FORWARD, ensureLines, releaseLines } from '../iptables-rules.ts';
import type { AccessPlan } from '../plan.ts';
import { TALLY } from '../skeleton.ts';

const FAMILIES = [4, 6] as const;

/**
 * Adds what is missing for the attachment, with two programs for each IP version that it has.
 * @throws Error with the words of the program
 */
export function ensureIptables(plan: AccessPlan, adminChain: string): void {
  inTurn(runDir(), 'firewall', () => {
    for (const { family, wanted } of byFamily(plan, adminChain)) {
      change(family, ensureLines(saveTable(family, 'filter'), wanted));
    }
  });
}

/** @throws Error naming the first line that ADD would add */
export function checkIptables(plan: AccessPlan, adminChain: string): void {
  for (const { family, wanted } of byFamily(plan, adminChain)) {
    const [line, ...more] = ensureLines(saveTable(family, 'filter'), wanted);
    if (line === undefined) continue;
    const others = more.length ? ` and ${more.length} more` : '';
    throw new Error(
      `Cannot confirm rules of ip${family === 4 ? '' : '6'}tables: the table "filter" lacks "${line}"${others}`,
    );
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
export function releaseForeign(socket: NetlinkSocket, pods: readonly Ip[]): void {
  const families = FAMILIES.filter(
    family => pods.some(pod => pod.family === family) && hasIptables(socket, family),
  );
  if (families.length) removeFromIptables(families, pods, []);
}

/**
 * Makes sure that the programs are there and may read the table.
 * @throws Error with the words of the program, or when it is missing
 */
export function tryIptables(): void {
  for (const family of FAMILIES) {
    getRestore(family);
    saveTable(family, 'filter');
  }
}

/**
 * Whether iptables, which must accept a packet too, drops what it is not told to accept.
 * Same as: `iptables -S FORWARD` beginning with `-P FORWARD DROP`, where iptables uses nf_tables
 */
export function doesIptablesDrop(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return FAMILIES.filter(family => pods.some(pod => pod.family === family)).some(family => {
    return isDropping(socket, { table: filterTable(family), chain: 'FORWARD' });
  });
}

/** Asking iptables itself would start a program, and make the table. */
function hasIptables(socket: NetlinkSocket, family: 4 | 6): boolean {
  if (hasChain(socket, { table: filterTable(family), chain: CNI_FORWARD })) return true;
  try {
    const names = readFileSync(`/proc/thread-self/net/ip${family === 4 ? '' : '6'}_tables_names`, 'utf8');
    return names.split('\n').includes('filter');
  } catch {
    return false;
  }
}

function removeFromIptables(
  families: readonly (4 | 6)[],
  pods: readonly Ip[],
  bridges: readonly string[],
): void {
  inTurn(runDir(), 'firewall', () => {
    for (const family of families) {
      const own = pods.filter(pod => pod.family === family);
      change(family, releaseLines(saveTable(family, 'filter'), own, bridges));
    }
  });
}

function filterTable(family: 4 | 6): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'filter' };
}

function byFamily({ pods, ingress }: AccessPlan, adminChain: string) {
  return FAMILIES.flatMap(family => {
    const own = pods.filter(pod => pod.family === family);
    return own.length ? { family, wanted: { pods: own, adminChain, ...(ingress ? { ingress } : {}) } } : [];
  });
}

function change(family: 4 | 6, lines: readonly string[]): void {
  if (lines.length) restoreTable(family, 'filter', lines);
}
