// What does the kernel say when something changes, and how is that received without a thread that waits for it?

import { closeSync } from 'node:fs';
import { closeLater } from '../sys/libc.ts';
import { attachFilter, type Instruction, labelledReader } from '../sys/socket-option.ts';
import { startTimer, type Timer } from '../wait.ts';
import { attrs, decodeMessages, type Envelope, layout, s32, str, struct, u8 } from './codec.ts';
import { elementMessage } from './nft/element.ts';
import { nfgenmsg, nftType } from './nft/message.ts';
import { isDormant, tableMessage } from './nft/table.ts';
import { ifaddrmsg } from './rtnl/addr.ts';
import { IFF_UP, linkMessage } from './rtnl/link.ts';
import { AF, messages, rtm } from './rtnl/message.ts';
import { tcmsg } from './rtnl/qdisc.ts';
import { decodeRoute, waysOf } from './rtnl/route.ts';
import {
  enlargeReceiveBuffer,
  joinGroup,
  NETLINK_ROUTE,
  openNetlink,
  SOL_NETLINK,
  setMembership,
} from './socket.ts';

/** A firewall reload on a full node is some MiB of notifications, which arrive faster than they are read. */
const BUFFER_BYTES = 8 << 20;
/** Pause before a socket that has failed is opened again. */
const REOPEN_MS = 100;
/** So many failures to open it in a row are reported. */
const FAILURES_TO_REPORT = 5;

interface MonitorEvents {
  /** Notifications, in the kernel's order. */
  changed(messages: readonly Envelope[]): void;
  /**
   * Some were lost, because the socket's buffer was full or one could not be read: anything may have changed. Called when the
   * monitor listens again, so that what is looked at now and what is notified from now on leave no gap.
   */
  lost(why: string): void;
  /** It cannot listen at present, and tries again. Called once; `lost` follows when it can. */
  interrupted(why: string): void;
}

interface MonitorOptions {
  readonly filter?: readonly Instruction[];
  readonly bufferBytes?: number;
}

/**
 * Joins multicast groups of a protocol, in the namespace of this process. The event loop reads the socket when it is readable; the
 * kernel's answer to a full buffer (ENOBUFS) ends the stream, so the socket is opened again.
 * @param groups RTNLGRP_* of linux/rtnetlink.h, NFNLGRP_* of linux/netfilter/nfnetlink.h
 * @param options.filter what is notified of; default: everything
 * @param options.bufferBytes size of the socket's buffer
 * @returns a function that closes it
 * @throws SystemError if the socket cannot be opened, Error if it cannot be read
 */
export function openMonitor(
  protocol: number,
  groups: readonly number[],
  events: MonitorEvents,
  options: MonitorOptions = {},
): () => void {
  let reader: Listening['reader'] | undefined;
  let isClosed = false;
  /** @returns why the stream ended */
  const read = async ({ fd, reader: own }: Listening): Promise<string> => {
    reader = own;
    try {
      for (;;) {
        const { value, done } = await own.read();
        if (done || isClosed) return 'the socket was closed';
        events.changed(decodeMessages(value));
      }
    } catch (error) {
      await own.cancel().catch(() => {});
      return describeThrown(error);
    } finally {
      // A plain close could wait for a grace period of nf_tables.
      closeLater(fd);
    }
  };
  /** @returns undefined if the monitor has been closed */
  const rejoin = async (): Promise<Listening | undefined> => {
    for (let failures = 1; ; failures++) {
      await Bun.sleep(REOPEN_MS);
      if (isClosed) return undefined;
      try {
        return join(protocol, groups, options);
      } catch (error) {
        if (failures === FAILURES_TO_REPORT) events.interrupted(describeThrown(error));
      }
    }
  };
  const follow = async (first: Listening): Promise<void> => {
    for (let on: Listening | undefined = first; on !== undefined; ) {
      const why = await read(on);
      on = await rejoin();
      if (on !== undefined) events.lost(why);
    }
  };
  void follow(join(protocol, groups, options));
  return () => {
    isClosed = true;
    void reader?.cancel().catch(() => {});
  };
}

/**
 * Opens several listeners, in their order, or none of them. What had been opened is closed when one cannot be: those who try again would
 * use up the descriptors that it waits for.
 * @param openers each returns what closes its listener
 * @returns a function that closes all
 */
export function openAll(openers: readonly (() => () => void)[]): () => void {
  const opened: (() => void)[] = [];
  const closeAll = (): void => {
    for (const close of opened) close();
  };
  try {
    for (const open of openers) opened.push(open());
    return closeAll;
  } catch (error) {
    closeAll();
    throw error;
  }
}

function describeThrown(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

interface Listening {
  readonly fd: number;
  readonly reader: ReturnType<typeof readerOf>;
}

function join(
  protocol: number,
  groups: readonly number[],
  { bufferBytes = BUFFER_BYTES, filter }: MonitorOptions,
): Listening {
  const fd = openNetlink(protocol);
  enlargeReceiveBuffer(fd, bufferBytes);
  return subscribe(fd, filter, () => {
    for (const group of groups) joinGroup(fd, group);
    return { fd, reader: readerOf(fd) };
  });
}

/** @throws Error where no descriptor is left: the stream has one of its own */
function readerOf(fd: number) {
  try {
    return Bun.file(fd).stream().getReader();
  } catch (error) {
    throw new Error(`Cannot read a netlink socket: ${describeThrown(error)}`, { cause: error });
  }
}

/** Filters before it joins, so that nothing else is received. @returns what joining returns; if it fails, the socket is closed */
function subscribe<T>(fd: number, filter: readonly Instruction[] | undefined, joinAll: () => T): T {
  try {
    if (filter) attachFilter(fd, filter);
    return joinAll();
  } catch (error) {
    closeLater(fd);
    throw error;
  }
}

/** linux/rtnetlink.h, RTNLGRP_LINK, _TC, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE, _IPV4_NETCONF, _IPV6_NETCONF. */
export const ROUTE_GROUPS: readonly number[] = [1, 4, 5, 7, 9, 11, 24, 25];
/** Those for other namespaces, in which only devices, addresses and routes are ours. */
const PEER_GROUPS: readonly number[] = [1, 5, 7, 9, 11];

const [NEWLINK, DELLINK] = [rtm('NEW', 'LINK'), rtm('DEL', 'LINK')];
const [DELADDR, DELROUTE] = [rtm('DEL', 'ADDR'), rtm('DEL', 'ROUTE')];
const [DELQDISC, DELTFILTER] = [rtm('DEL', 'QDISC'), rtm('DEL', 'TFILTER')];
const NEWNETCONF = rtm('NEW', 'NETCONF');
/** linux/netconf.h: the index that stands for all devices. */
const NETCONFA_IFINDEX_ALL = -1;

/** A change of the namespace's devices, addresses, routes, traffic control or forwarding. Additions other than devices are left out. */
export type RouteNotification =
  | {
      readonly what: 'device';
      readonly index: number;
      readonly name: string;
      readonly isGone: boolean;
      readonly isUp: boolean;
      /** Index of its bridge or other master; 0 for none. */
      readonly master: number;
      readonly mac: string | undefined;
      /** Bytes. */
      readonly mtu: number;
      /** Index of its other end or lower device; 0 for none. */
      readonly peer: number;
      /** Number of the namespace that `peer` is in; undefined: the same. */
      readonly nsid: number | undefined;
    }
  /** Something was removed from the device. */
  | { readonly what: 'address' | 'route' | 'traffic control'; readonly index: number }
  /** Forwarding was turned off: on a device, or on all (undefined). */
  | { readonly what: 'forwarding'; readonly index: number | undefined };

/** linux/netconf.h: struct netconfmsg, NETCONFA_* */
const netconfmsg = struct('netconfmsg', { family: u8 });
const netconfMessage = messages(
  'NETCONF',
  netconfmsg,
  attrs('netconf', { index: [1, s32], forwarding: [2, s32] }),
);

/**
 * What {@link decodeRouteNotification} reads, which is half of what the kernel says of an ADD. The first byte of the type is all of it, and the first one
 * after the envelope is the family.
 */
export const ROUTE_FILTER: readonly Instruction[] = routeFilter([
  ...[NEWLINK, DELLINK, DELADDR, DELROUTE, DELQDISC, DELTFILTER, NEWNETCONF],
]);

function routeFilter(types: readonly number[]): Instruction[] {
  const [LDB, JEQ, RET] = [0x30, 0x15, 0x06];
  return [
    [LDB, 0, 0, 4],
    ...types.map((type, i): Instruction => [JEQ, types.length - i, 0, type]),
    [RET, 0, 0, 0],
    [LDB, 0, 0, 16],
    [JEQ, 0, 1, AF.bridge],
    [RET, 0, 0, 0],
    [RET, 0, 0, 0xffff_ffff],
  ];
}

/** @returns nothing for an addition, and for what no attachment consists of; of a route by several devices one for each */
export function decodeRouteNotification({ type, body }: Envelope): readonly RouteNotification[] {
  if (type === NEWLINK || type === DELLINK) return decodeDevice(type, body);
  if (type === DELADDR) return [{ what: 'address', index: ifaddrmsg.decode(body).index }];
  if (type === DELQDISC || type === DELTFILTER) {
    const { index, handle } = tcmsg.decode(body);
    // The kernel's default, which the first discipline takes the place of.
    const isDefault = type === DELQDISC && handle === 0;
    return isDefault ? [] : [{ what: 'traffic control', index }];
  }
  if (type === DELROUTE) {
    const indexes = new Set(waysOf(decodeRoute(body)).map(({ oif }) => oif));
    return [...indexes].flatMap(index => (index === 0 ? [] : { what: 'route', index }));
  }
  if (type !== NEWNETCONF) return [];
  const { index, forwarding } = netconfMessage.decode(body).attrs;
  if (forwarding !== 0 || index === undefined) return [];
  if (index === NETCONFA_IFINDEX_ALL) return [{ what: 'forwarding', index: undefined }];
  // -2 is the default for devices to come.
  return index > 0 ? [{ what: 'forwarding', index }] : [];
}

function decodeDevice(type: number, body: Uint8Array): RouteNotification[] {
  const { header, attrs: own } = linkMessage.decode(body);
  const { index, flags, family } = header;
  // A bridge reports its ports, too; one that leaves it is deleted for the bridge alone.
  if (own.ifname === undefined || family === AF.bridge) return [];
  const place = { index, name: own.ifname, isGone: type === DELLINK, isUp: (flags & IFF_UP) !== 0 };
  const { master = 0, address: mac, mtu = 0, link: peer = 0, linkNetnsId: nsid } = own;
  return [{ what: 'device', ...place, master, mac, mtu, peer, nsid }];
}

/** linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES. Changes made by iptables-nft arrive here, too; those of iptables-legacy do not. */
export const NFT_GROUPS: readonly number[] = [7];

export interface NftChange {
  readonly table: string;
  /** Of a chain or a rule: the chain. */
  readonly chain?: string | undefined;
  /** Of elements: their set. */
  readonly set?: string;
  /** Of elements: what their comments say. Undefined for a table, chain, rule or set: whom it concerns is not known. */
  readonly comments?: readonly string[];
}

/** The first attribute of each of these messages is the name of the table. */
const tableOnly = layout(nfgenmsg, attrs('deletion', { table: [1, str] }));

/** linux/netfilter/nf_tables.h: NFTA_RULE_CHAIN, NFTA_SET_ELEM_LIST_SET. */
const tableAndSecond = layout(nfgenmsg, attrs('place', { table: [1, str], second: [2, str] }));
/** NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME. */
const chainName = layout(nfgenmsg, attrs('chain', { table: [1, str], chain: [3, str] }));

const DELETIONS = (['TABLE', 'CHAIN', 'RULE', 'SET', 'SETELEM'] as const).map(kind => nftType('DEL', kind));

/**
 * @param isWanted tables whose deletions are of interest: other software changes many elements of its own
 * @returns undefined for everything but their deletions
 */
export function decodeNftDeletion(
  { type, body }: Envelope,
  isWanted: (table: string) => boolean,
): NftChange | undefined {
  if (!DELETIONS.includes(type)) return undefined;
  const { table } = tableOnly.decode(body).attrs;
  if (table === undefined || !isWanted(table)) return undefined;
  if (type !== nftType('DEL', 'SETELEM')) return { table, chain: chainIn(type, body) };
  const { set = '', elements = [] } = elementMessage.decode(body).attrs;
  return { table, set, comments: elements.flatMap(({ comment }) => comment ?? []) };
}

function chainIn(type: number, body: Uint8Array): string | undefined {
  if (type === nftType('DEL', 'RULE')) return tableAndSecond.decode(body).attrs.second;
  const isChain = type === nftType('DEL', 'CHAIN') || type === nftType('NEW', 'CHAIN');
  return isChain ? chainName.decode(body).attrs.chain : undefined;
}

export function decodeNftSetAddition({ type, body }: Envelope): { table: string; set: string } | undefined {
  if (type !== nftType('NEW', 'SETELEM')) return undefined;
  const { table, second: set } = tableAndSecond.decode(body).attrs;
  return table === undefined || set === undefined ? undefined : { table, set };
}

/** @returns undefined for everything but a table or chain that is new, or whose policy or flags have changed */
export function decodeNftAddition({
  type,
  body,
}: Envelope): (NftChange & { isDormant?: boolean }) | undefined {
  if (type === nftType('NEW', 'TABLE')) {
    const { name, flags } = tableMessage.decode(body).attrs;
    return name === undefined ? undefined : { table: name, isDormant: isDormant({ flags }) };
  }
  if (type !== nftType('NEW', 'CHAIN')) return undefined;
  const { table } = tableOnly.decode(body).attrs;
  return table === undefined ? undefined : { table, chain: chainIn(type, body) };
}

// What changes in the network namespaces to which devices of this one lead?
//
// One socket hears of all of them and keeps none of them alive: those for which this namespace has a number, which the kernel gives to
// each namespace that the other end of one of its devices is in. Only the control message of a datagram says which one it is about.

/** linux/netlink.h, Linux 4.2 */
const NETLINK_LISTEN_ALL_NSID = 8;

/**
 * How often the socket is looked at, since a stream of the event loop would not have the control messages: soon again after something was heard,
 * and less often while nothing is, as each look wakes a daemon at rest.
 */
const EVERY_MS = 250;
const CALM_MS = 1_000;
/** A notification is less than this. */
const MOST_BYTES = 1 << 15;
/** More datagrams at one look than this are a namespace in which things change all the time. */
const MOST_AT_ONCE = 1_000;
/** Such a time is waited for without listening. */
const PAUSE_MS = 10_000;

/** Messages of one namespace, by the number that it has here. */
export interface PeerMessages {
  readonly nsid: number;
  readonly messages: readonly Envelope[];
}

interface PeerMonitorEvents {
  /** Notifications since the last look, in the kernel's order. */
  changed(notifications: readonly PeerMessages[]): void;
  /** Some were not read, and it listens again. */
  lost(why: string): void;
}

/**
 * Listens until it is closed. Containers decide how much there is to hear, so what it costs is limited.
 * @returns a function that closes it
 * @throws SystemError if the socket cannot be opened, or the kernel is too old
 */
export function openPeerMonitor(events: PeerMonitorEvents): () => void {
  const read = labelledReader(MOST_BYTES, { level: SOL_NETLINK, type: NETLINK_LISTEN_ALL_NSID });
  let fd: number | undefined = listenToPeers();
  let timer: Timer | undefined;
  let isClosed = false;
  let afterMs = EVERY_MS;
  let reopenAt = 0;
  let why = '';
  const pause = (reason: string): void => {
    if (fd !== undefined) closeSync(fd);
    fd = undefined;
    [why, reopenAt] = [reason, performance.now() + PAUSE_MS];
  };
  const readAll = (from: number): PeerMessages[] => {
    const found: PeerMessages[] = [];
    for (let i = 0; i < MOST_AT_ONCE; i++) {
      const datagram = read(from);
      if (datagram === undefined) return found;
      const { bytes, label: nsid } = datagram;
      // What this namespace itself notifies has no label.
      if (nsid !== undefined) found.push({ nsid, messages: decodeMessages(bytes) });
    }
    pause(`more than ${MOST_AT_ONCE} notifications at once`);
    return found;
  };
  const look = (): void => {
    try {
      if (fd === undefined) {
        if (performance.now() < reopenAt) return;
        fd = listenToPeers();
        events.lost(why);
      }
      const found = readAll(fd);
      afterMs = found.length > 0 ? EVERY_MS : Math.min(2 * afterMs, CALM_MS);
      if (found.length > 0) events.changed(found);
    } catch (error) {
      pause(describeThrown(error));
    }
  };
  const lookLater = (): void => {
    if (isClosed) return;
    timer = startTimer(() => {
      look();
      lookLater();
    }, afterMs);
    timer.unref();
  };
  lookLater();
  return () => {
    isClosed = true;
    clearTimeout(timer);
    if (fd !== undefined) closeSync(fd);
    fd = undefined;
  };
}

function listenToPeers(): number {
  const fd = openNetlink(NETLINK_ROUTE);
  const whose = 'other network namespaces';
  return subscribe(fd, ROUTE_FILTER, () => {
    setMembership(fd, NETLINK_LISTEN_ALL_NSID, 1, whose);
    for (const group of PEER_GROUPS) joinGroup(fd, group, whose);
    return fd;
  });
}
