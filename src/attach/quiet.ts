// How does a container have an address that another one still uses, without taking its packets away?
//
// What the container's own kernel sends through an interface ends at the output hooks of ARP and IP: answers, announcements, probes,
// reports of multicast groups. So no neighbour and no switch learns of it. What is bridged through the container, as the frames of a
// virtual machine are, passes: a machine that runs speaks for itself. The tables end with the namespace.
import { attempt, tryAgainLater } from '../cni/errors.ts';
import { decide, isEqual, loadMeta, NF_DROP, REG } from '../netlink/nft/expr.ts';
import { commit, type Table } from '../netlink/nft/message.ts';
import { addChain, addRule, addTable, deleteTable, encodeFields, hasTable } from '../netlink/nft/table.ts';
import { findLink, setLink } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NetlinkError, NetlinkSocket } from '../netlink/socket.ts';
import { inNetns, type Netns } from '../sys/netns.ts';

const TABLES: readonly Table[] = [
  { family: 'arp', name: 'catena-quiet' },
  { family: 'inet', name: 'catena-quiet' },
];
const CHAIN = 'output';

/**
 * From now on nothing of the container's own leaves through interfaces of these names, which need not exist yet.
 * @throws CniError 11 when the kernel cannot do that
 */
export function beginQuiet(netns: Netns, ifnames: readonly string[]): void {
  const changes = TABLES.flatMap(table => [
    // What an earlier attempt left.
    ...[addTable(table), deleteTable(table)],
    addTable(table, 'until the machine that moves here has left its former pod'),
    addChain(table, CHAIN, { type: 'filter', hook: 'output', priority: 0 }),
    ...ifnames.map(ifname => {
      const isFrom = [loadMeta(REG.first, 'oifname'), isEqual(REG.first, encodeFields(['ifname'], [ifname]))];
      return addRule(table, CHAIN, [...isFrom, decide({ code: NF_DROP })]);
    }),
  ]);
  try {
    inNftables(netns, socket => commit(socket, changes));
  } catch (cause) {
    if (!(cause instanceof NetlinkError)) throw cause;
    throw tryAgainLater(
      `Cannot keep ${ifnames.join(', ')} in "${netns.path}" quiet while another pod has the addresses: ${cause.message}`,
      { details: 'the kernel needs nf_tables for ARP and IP (NF_TABLES_ARP, NF_TABLES_INET)', cause },
    );
  }
}

/**
 * Lets the container speak again, and has the kernel announce what the interfaces have.
 * @param container a socket in it
 */
export function endQuiet(netns: Netns, container: NetlinkSocket, ifnames: readonly string[]): void {
  inNftables(netns, socket => {
    for (const table of TABLES) if (hasTable(socket, table)) commit(socket, [deleteTable(table)]);
  });
  for (const name of ifnames) {
    const link = findLink(container, name);
    // Same as: `ip link set eth0 address <the one that it has>`
    if (link?.mac) setLink(container, link.index, { mac: link.mac });
  }
}

/** Whether some interface of the container is quiet: then it asks for no address, since the one that has it would answer. */
export function isQuiet(netns: Netns): boolean {
  // A kernel without nf_tables keeps nothing quiet.
  return attempt(() => inNftables(netns, socket => TABLES.some(table => hasTable(socket, table)))) ?? false;
}

function inNftables<T>(netns: Netns, work: (socket: NetlinkSocket) => T): T {
  const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
  try {
    return work(socket);
  } finally {
    socket.close();
  }
}
