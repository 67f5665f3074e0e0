// Which chains, rules and sets has the packet filter of this node?
import { type Chain, listChains } from '../../netlink/nft/chain.ts';
import type { Table } from '../../netlink/nft/message.ts';
import { listRules, type Rule } from '../../netlink/nft/rule.ts';
import { listRawElements, type RawElement } from '../../netlink/nft/set-contents.ts';
import { listTableNames } from '../../netlink/nft/table.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../../netlink/socket.ts';

/** A table with all that decides about packets. */
export interface FilterTable {
  readonly table: Table;
  /** Whether a plugin of ours made it. */
  readonly isOwn: boolean;
  readonly chains: readonly Chain[];
  /** In order, by chain. */
  readonly rules: ReadonlyMap<string, readonly Rule[]>;
  /** Read on first use; undefined if it cannot be read. */
  readonly contents: (set: string) => readonly RawElement[] | undefined;
}

/** The packet filter of a node. */
export interface Ruleset {
  readonly tables: readonly FilterTable[];
  close(): void;
}

/** The names of all our tables begin like this. */
const OWN_PREFIX = 'catena_';

/**
 * Reads the tables of the families that forwarded packets pass. Rules of the old iptables are not in nf_tables.
 * @throws Error without the right to read it
 */
export function readRuleset(): Ruleset {
  const socket = new NetlinkSocket(NETLINK_NETFILTER);
  try {
    const names = listTableNames(socket).filter(({ family }) => ['inet', 'ip', 'ip6'].includes(family));
    return { tables: names.map(table => readTable(socket, table)), close: () => socket.close() };
  } catch (error) {
    socket.close();
    throw error;
  }
}

function readTable(socket: NetlinkSocket, table: Table): FilterTable {
  const rules = new Map<string, Rule[]>();
  for (const rule of listRules(socket, table)) {
    const before = rules.get(rule.chain);
    if (before) before.push(rule);
    else rules.set(rule.chain, [rule]);
  }
  const known = new Map<string, readonly RawElement[] | undefined>();
  return {
    table,
    isOwn: table.name.startsWith(OWN_PREFIX),
    chains: listChains(socket, table),
    rules,
    contents(set) {
      if (!known.has(set)) known.set(set, tryList(socket, table, set));
      return known.get(set);
    },
  };
}

function tryList(socket: NetlinkSocket, table: Table, set: string): readonly RawElement[] | undefined {
  try {
    return listRawElements(socket, table, set);
  } catch {
    return undefined;
  }
}
