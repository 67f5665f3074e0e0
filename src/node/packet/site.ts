// What does a namespace on the way of a packet hold?

import { existsSync, readFileSync } from 'node:fs';
import { renderIp } from '../../net/ip.ts';
import { RT_SCOPE_UNIVERSE } from '../../netlink/rtnl/addr.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import { type Listener, listListeners } from '../../netlink/sock-diag.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../netlink/socket.ts';
import { askHere, askIn, type FilterTable, isForwarding, isOwnTable, Tables } from '../../netlink/tables.ts';
import { closeNetns, findNetns, inNetns, type Netns } from '../../sys/netns.ts';
import { findSysctl } from '../../sys/sysctl.ts';
import { BRIDGE_FAMILIES } from '../doctor/filter/fates.ts';

/** The node, or a container: its devices, addresses and rules, read on first use. */
export class Site {
  readonly name: string;
  /** The path of a container's namespace. */
  readonly path: string | undefined;
  /** Undefined for the namespace of this process, which any user may read. */
  readonly #netns: Netns | undefined;
  readonly route: NetlinkSocket;
  readonly tables: Tables;
  #unread: Unread | undefined;

  private constructor(name: string, path: string | undefined, netns: Netns | undefined) {
    this.name = name;
    this.path = path;
    this.#netns = netns;
    this.route = this.#in(() => new NetlinkSocket(NETLINK_ROUTE));
    this.tables = new Tables(netns === undefined ? askHere : askIn(netns));
  }

  /** The namespace of this process. */
  static openNode(): Site {
    return new Site('node', undefined, undefined);
  }

  /** Undefined if the namespace is gone, or may not be entered. */
  static open(name: string, path: string): Site | undefined {
    const netns = findNetns(path);
    if (netns === undefined) return undefined;
    try {
      return new Site(name, path, netns);
    } catch {
      closeNetns(netns);
      return undefined;
    }
  }

  get isNode(): boolean {
    return this.path === undefined;
  }

  get links(): readonly Link[] {
    return this.tables.links;
  }

  link(which: string | number): Link | undefined {
    return this.links.find(({ name, index }) => name === which || index === which);
  }

  has(address: string): boolean {
    return (
      address.startsWith('127.') || this.tables.addresses.some(({ cidr }) => renderIp(cidr.ip) === address)
    );
  }

  addressOf(link: Link | undefined, family: 4 | 6): string | undefined {
    const own = this.tables.addresses.find(
      ({ index, scope, cidr }) =>
        index === link?.index && scope === RT_SCOPE_UNIVERSE && cidr.ip.family === family,
    );
    return own && renderIp(own.cidr.ip);
  }

  sysctl(path: string): string | undefined {
    return this.#in(() => findSysctl(path));
  }

  listeners(protocol: 6 | 17): Listener[] | undefined {
    return this.#in(() => listListeners(protocol));
  }

  /** What the walk sees: tables of the families that forwarded packets pass. None without the right to read them. */
  get filter(): readonly FilterTable[] {
    return this.#filterOf(isForwarding);
  }

  /** The tables that a packet inside a bridge passes. */
  get bridgeFilter(): readonly FilterTable[] {
    return this.#filterOf(isBridging);
  }

  #filterOf(isWanted: typeof isForwarding): readonly FilterTable[] {
    try {
      return this.tables.filter.filter(isWanted);
    } catch {
      return [];
    }
  }

  /** Which rules the walk does not see, human-readable; empty if there are none. */
  get unread(): string {
    return this.#findUnread().others.join(', ');
  }

  /** Those of them that may translate addresses. */
  get translators(): string {
    return this.#findUnread().translators.join(', ');
  }

  #findUnread(): Unread {
    this.#unread ??= this.#in(() => findUnread(this.tables));
    return this.#unread;
  }

  /** A command line, as it is typed on the node. */
  command(line: string): string {
    return this.path === undefined ? line : `nsenter --net=${this.path} ${line}`;
  }

  close(): void {
    this.route.close();
    if (this.#netns) closeNetns(this.#netns);
  }

  #in<T>(visit: () => T): T {
    return this.#netns === undefined ? visit() : inNetns(this.#netns, visit as () => never);
  }
}

interface Unread {
  readonly translators: readonly string[];
  readonly others: readonly string[];
}

const isBridging: typeof isForwarding = ({ table }) => BRIDGE_FAMILIES.includes(table.family);

function findUnread(kernel: Tables): Unread {
  try {
    const legacy = ['ip', 'ip6'].map(family => {
      const file = `/proc/thread-self/net/${family}_tables_names`;
      const tables = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
      return { name: `the rules of ${family}tables-legacy`, tables: tables.filter(name => name !== '') };
    });
    const foreign = kernel.nftTables.filter(
      table => !isForwarding({ table }) && !isBridging({ table }) && !isOwnTable(table),
    );
    const translators = legacy.filter(({ tables }) => tables.includes('nat'));
    const filters = legacy.filter(one => one.tables.length > 0 && !translators.includes(one));
    return {
      translators: translators.map(({ name }) => name),
      others: [
        ...filters.map(({ name }) => name),
        ...foreign.map(({ family, name }) => `table ${family} ${name}`),
      ],
    };
  } catch {
    return { translators: ['the rules of nf_tables'], others: [] };
  }
}
