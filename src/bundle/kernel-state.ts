// What has the kernel in the namespace of this process: devices, addresses, routes, traffic control, packet filter?
import { readPlace } from '../lab/snapshot.ts';
import { listChains } from '../netlink/nft/chain.ts';
import { listRules } from '../netlink/nft/rule.ts';
import { listTableNames } from '../netlink/nft/table.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, openOwnNetns } from '../sys/netns.ts';

/** A line for each object, as `catena try` names them. */
export function readKernelLines(): string[] {
  const netns = openOwnNetns();
  const route = new NetlinkSocket(NETLINK_ROUTE);
  const netfilter = new NetlinkSocket(NETLINK_NETFILTER);
  try {
    const state = readPlace({ name: 'host', netns, route, netfilter }, []);
    return [...state.values()].map(({ words, state: details = {} }) => {
      const more = Object.entries(details).map(([name, value]) => `${name} ${value}`);
      return [words, ...(more.length ? [more.join(', ')] : [])].join(': ');
    });
  } finally {
    route.close();
    netfilter.close();
    closeNetns(netns);
  }
}

/** Every chain with its rules, of all tables and owners; bytes as hexadecimal digits. */
export function readFilter(): unknown {
  const socket = new NetlinkSocket(NETLINK_NETFILTER);
  try {
    const tables = listTableNames(socket).map(table => {
      const rules = listRules(socket, table);
      return {
        table,
        chains: listChains(socket, table).map(chain => ({
          ...chain,
          rules: rules.filter(rule => rule.chain === chain.name),
        })),
      };
    });
    return plain(tables);
  } finally {
    socket.close();
  }
}

function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}
