// What does the kernel have in one network namespace, table by table?
//
// All views of a node read through this: each table is read when it is first asked for, and once, so a view pays for what it shows.
import { inNetns, type Netns } from '../sys/netns.ts';
import { listRawElements, type NotedElement, notedElementsOf, type RawElement } from './nft/element.ts';
import type { NftMessages, NftObject, Table } from './nft/message.ts';
import {
  type Chain,
  chainMessage,
  type ListedTable,
  listTableNames,
  type Rule,
  ruleMessage,
  setMessage,
  toChain,
  toRule,
} from './nft/table.ts';
import { type Address, listAddresses } from './rtnl/addr.ts';
import { type Link, listLinks } from './rtnl/link.ts';
import { listPermanentNeighbours, type Neighbour } from './rtnl/neighbour.ts';
import { listQdiscs, type Qdisc } from './rtnl/qdisc.ts';
import { listRefusingRoutes, listRoutes, type RefusingRoute, type Route } from './rtnl/route.ts';
import { listRules as listPolicyRules, type Rule as PolicyRule } from './rtnl/rule.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from './socket.ts';

type Ask = <T>(protocol: number, talk: (socket: NetlinkSocket) => T) => T;

/** A table of nf_tables with all that decides about packets. */
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

/** Whether a table is one of ours: their names begin alike. */
export function isOwnTable({ name }: Pick<Table, 'name'>): boolean {
  return name.startsWith('catena_');
}

/** Whether forwarded packets pass a table. */
export function isForwarding({ table }: Pick<FilterTable, 'table'>): boolean {
  return ['inet', 'ip', 'ip6'].includes(table.family);
}

/** The tables of a namespace. All of them throw NetlinkError or SystemError if the kernel refuses to list them. */
export class Tables {
  readonly #ask: Ask;
  readonly #known = new Map<string, unknown>();

  /** @param ask by default on a socket of this thread's namespace, for each table a new one */
  constructor(ask: Ask = askHere) {
    this.#ask = ask;
  }

  get links(): readonly Link[] {
    return this.#routing('links', listLinks);
  }

  get addresses(): readonly Address[] {
    return this.#routing('addresses', listAddresses);
  }

  get routes(): readonly Route[] {
    return this.#routing('routes', listRoutes);
  }

  get refusingRoutes(): readonly RefusingRoute[] {
    return this.#routing('refusing routes', listRefusingRoutes);
  }

  get policyRules(): readonly PolicyRule[] {
    return this.#routing('policy rules', listPolicyRules);
  }

  get neighbours(): readonly Neighbour[] {
    return this.#routing('neighbours', listPermanentNeighbours);
  }

  get qdiscs(): readonly Qdisc[] {
    return this.#routing('qdiscs', listQdiscs);
  }

  /** Same as: `nft -a list tables`; a table that was made later has a higher handle. */
  get nftTables(): readonly ListedTable[] {
    return this.#once('nft tables', () => this.#ask(NETLINK_NETFILTER, listTableNames));
  }

  get nftChains() {
    return this.#objects('chains', chainMessage);
  }

  get nftRules() {
    return this.#objects('rules', ruleMessage);
  }

  get nftSets() {
    return this.#objects('sets', setMessage);
  }

  /** Elements of our tables that have a comment. */
  get ownElements(): readonly NotedElement[] {
    return this.#once('elements', () => {
      const own = this.nftSets.filter(({ table }) => isOwnTable(table));
      return this.#ask(NETLINK_NETFILTER, socket =>
        own.flatMap(({ table, attrs }) => notedElementsOf(socket, table, attrs)),
      );
    });
  }

  /** The packet filter, table by table, without those that are dormant. Rules of the old iptables are not in nf_tables. */
  get filter(): readonly FilterTable[] {
    return this.#once('filter', () => {
      const awake = this.nftTables.filter(({ isDormant }) => !isDormant);
      const tables = new Map(
        awake.map(({ family, name }) => {
          const table = { family, name };
          const contents = (set: string) => this.contentsOf(table, set);
          const [chains, rules]: [Chain[], Map<string, Rule[]>] = [[], new Map()];
          return [keyOf(table), { table, isOwn: isOwnTable(table), chains, rules, contents }];
        }),
      );
      for (const { table, attrs } of this.nftChains) tables.get(keyOf(table))?.chains.push(toChain(attrs));
      for (const { table, attrs } of this.nftRules) {
        const rules = tables.get(keyOf(table))?.rules;
        const rule = toRule(attrs);
        const before = rules?.get(rule.chain);
        if (before) before.push(rule);
        else rules?.set(rule.chain, [rule]);
      }
      return [...tables.values()];
    });
  }

  /** What a part of a table is asked for, such as the filters of one device. */
  ask<T>(protocol: number, talk: (socket: NetlinkSocket) => T): T {
    return this.#ask(protocol, talk);
  }

  /** The elements of a set or map; undefined if it cannot be read. */
  contentsOf(table: Table, set: string): readonly RawElement[] | undefined {
    return this.#once(`contents of ${keyOf(table)} ${set}`, () => {
      try {
        return this.#ask(NETLINK_NETFILTER, socket => listRawElements(socket, table, set));
      } catch {
        return undefined;
      }
    });
  }

  #routing<T>(name: string, list: (socket: NetlinkSocket) => T): T {
    return this.#once(name, () => this.#ask(NETLINK_ROUTE, socket => list(socket)));
  }

  #objects<A>(what: string, messages: NftMessages<A>): readonly NftObject<A>[] {
    return this.#once(what, () =>
      this.#ask(NETLINK_NETFILTER, socket => messages.listAll(socket, `list ${what}`)),
    );
  }

  #once<T>(name: string, read: () => T): T {
    if (!this.#known.has(name)) this.#known.set(name, read());
    return this.#known.get(name) as T;
  }
}

/** Runs a conversation in this thread's namespace. */
export const askHere: Ask = (protocol, talk) => {
  const socket = new NetlinkSocket(protocol);
  try {
    return talk(socket);
  } finally {
    socket.close();
  }
};

/** Runs conversations in another namespace. */
export function askIn(netns: Netns): Ask {
  return (protocol, talk) => inNetns(netns, () => askHere(protocol, talk) as never);
}

export function askOn({ route, netfilter }: Readonly<Record<'route' | 'netfilter', NetlinkSocket>>): Ask {
  return (protocol, talk) => talk(protocol === NETLINK_ROUTE ? route : netfilter);
}

export function keyOf({ family, name }: Table): string {
  return `${family} ${name}`;
}
