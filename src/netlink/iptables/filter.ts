// How is iptables' table "filter" read and changed directly in nf_tables, without running a program?

import { type Family, type Ip, ipToBytes } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import type { Request } from '../codec/message.ts';
import { isNetlinkError } from '../errors.ts';
import { tryOut } from '../nft/batch.ts';
import { addChain, type BaseChain, hasChain, listChains } from '../nft/chain.ts';
import type { Table } from '../nft/message.ts';
import { addRule, deleteRule, insertRule, listRules, type Rule } from '../nft/rule.ts';
import { addTable } from '../nft/table.ts';
import type { NetlinkSocket } from '../socket.ts';
import { encodeFilterRule, renderFilterRule } from './filter-rule.ts';
import type { SavedTable } from './restore.ts';

/** linux/netfilter_ipv4.h, NF_IP_PRI_FILTER: the hooks and priority of this table's chains in iptables. */
const BUILT_IN: Readonly<Record<string, BaseChain>> = {
  INPUT: { type: 'filter', hook: 'input', priority: 0 },
  FORWARD: { type: 'filter', hook: 'forward', priority: 0 },
  OUTPUT: { type: 'filter', hook: 'output', priority: 0 },
};

/** The part of the table to read: it may be large, and chains of other software do not matter. */
export interface Extract {
  /** Read these chains and FORWARD; undefined for all. */
  readonly chains?: readonly string[];
  /** In this chain, read only rules that contain one of the addresses or start with the text; undefined for all. */
  readonly only?: { readonly chain: string; readonly ips: readonly Ip[]; readonly text: string };
}

/** The table that iptables uses for an IP version. */
export function filterTable(family: Family): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'filter' };
}

/**
 * Reads the table, decides about lines, and returns the changes that apply them; call it within `commitAfterReading`. The
 * table and its chain FORWARD are created if missing, in the layout that iptables recognises as its own.
 * @param decide returns lines in iptables-restore syntax: `-N`, `-A`, `-I <chain> 1`, `-D`; none for no change
 * Same as: `iptables-nft-save -t filter`, then `iptables-nft-restore --noflush`
 */
export function filterChanges(
  socket: NetlinkSocket,
  family: Family,
  extract: Extract,
  decide: (saved: SavedTable) => readonly string[],
): Request[] {
  const read = readRules(socket, family, extract);
  const lines = decide(read.saved);
  return lines.length ? changesFor(family, lines, read.rules) : [];
}

/** The table as {@link filterChanges} reads it; rules that our plugins do not write have no text. */
export function readFilter(socket: NetlinkSocket, family: Family, extract: Extract): SavedTable {
  return readRules(socket, family, extract).saved;
}

/**
 * True when the table does not exist, or when iptables recognises it as its own. A table of the same name made by other
 * software is usable neither for iptables nor for us.
 */
export function isFilterOfIptables(socket: NetlinkSocket, family: Family): boolean {
  const bases = listChains(socket, filterTable(family)).filter(({ base }) => base !== undefined);
  return bases.every(({ name, base }) => Bun.deepEquals(base, BUILT_IN[name], true));
}

/**
 * Asks the kernel whether it would accept the lines for a table without the rules that they delete; changes nothing.
 * @throws NetlinkError
 */
export function tryFilter(socket: NetlinkSocket, family: Family, lines: readonly string[]): void {
  tryOut(socket, changesFor(family, lines, []));
}

/** True when it would; false when the kernel lacks what iptables needs in nf_tables. */
export function canUseFilter(socket: NetlinkSocket, family: Family, lines: readonly string[]): boolean {
  try {
    tryFilter(socket, family, lines);
    return true;
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.ENOENT) || isNetlinkError(thrown, Errno.EOPNOTSUPP)) return false;
    throw thrown;
  }
}

interface ReadRule {
  readonly words: string;
  readonly rule: Rule;
}

function readRules(
  socket: NetlinkSocket,
  family: Family,
  { chains, only }: Extract,
): { saved: SavedTable; rules: ReadRule[] } {
  const table = filterTable(family);
  const names = chains
    ? [...new Set(['FORWARD', ...chains])].filter(name => hasChain(socket, table, name))
    : listChains(socket, table).map(({ name }) => name);
  const needles = only && [...only.ips.map(ipToBytes), new TextEncoder().encode(only.text)];
  const rules = names.flatMap(chain =>
    listRules(socket, table, chain, chain === only?.chain ? needles : undefined).map(rule => ({
      rule,
      words: renderFilterRule(family, rule) ?? `${chain} (rule ${rule.handle})`,
    })),
  );
  return { saved: { chains: names, rules: rules.map(({ words }) => words) }, rules };
}

function changesFor(family: Family, lines: readonly string[], present: readonly ReadRule[]): Request[] {
  const table = filterTable(family);
  const left = [...present];
  return [
    addTable(table),
    addChain(table, 'FORWARD', BUILT_IN.FORWARD),
    ...lines.map(line => {
      const [, command, words = ''] = /^(-\S+) (.*)$/.exec(line) ?? [];
      const [chain = ''] = words.split(' ', 1);
      const rest = words.slice(chain.length + 1);
      if (command === '-N') return addChain(table, words);
      if (command === '-A') return addRule(table, chain, encodeFilterRule(family, rest));
      if (command === '-I' && rest.startsWith('1 '))
        return insertRule(table, chain, encodeFilterRule(family, rest.slice(2)));
      const at = command === '-D' ? left.findIndex(one => one.words === words) : -1;
      const [found] = at < 0 ? [] : left.splice(at, 1);
      if (found) return deleteRule(table, chain, found.rule.handle);
      throw new Error(`Cannot apply "${line}" to table "filter": it is not known, or there is no such rule`);
    }),
  ];
}
