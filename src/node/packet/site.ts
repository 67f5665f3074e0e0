// What does a namespace on the way of a packet hold?

import { existsSync, readFileSync } from 'node:fs';
import type { FindPeer } from '../../between/note.ts';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { attempt } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { asWord } from '../../net/interface.ts';
import { renderIp } from '../../net/ip.ts';
import { RT_SCOPE_UNIVERSE } from '../../netlink/rtnl/addr.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import { type Listener, listListeners } from '../../netlink/sock-diag.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../netlink/socket.ts';
import { askHere, askIn, type FilterTable, isForwarding, isOwnTable, Tables } from '../../netlink/tables.ts';
import { closeNetns, findNetns, inNetns, type Netns } from '../../sys/netns.ts';
import { findSysctl } from '../../sys/sysctl.ts';
import type { Packet } from '../doctor/filter/packet.ts';
import { BRIDGE_FAMILIES } from '../doctor/filter/walk.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { titleOf } from '../words.ts';

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
    return attempt(() => this.tables.filter.filter(isForwarding)) ?? [];
  }

  /** The tables that a packet inside a bridge passes. */
  get bridgeFilter(): readonly FilterTable[] {
    return attempt(() => this.tables.filter.filter(isBridging)) ?? [];
  }

  /** Which rules the walk does not see. */
  get unread(): Unread {
    this.#unread ??= this.#in(() => findUnread(this.tables));
    return this.#unread;
  }

  /** A command line, as it is typed on the node. */
  command(line: string): string {
    return this.path === undefined ? line : `nsenter --net=${asWord(this.path)} ${line}`;
  }

  /** Brings a device up. */
  up(device: string): string {
    return this.command(`ip link set dev ${asWord(device)} up`);
  }

  close(): void {
    this.route.close();
    if (this.#netns) closeNetns(this.#netns);
  }

  #in<T>(visit: () => T): T {
    return this.#netns === undefined ? visit() : inNetns(this.#netns, visit as () => never);
  }
}

/** Rules, human-readable: those that may translate addresses, and others. */
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

/** Commands that make an attachment as its ADD made it. */
export interface Advice {
  /** Puts back addresses, routes, rules and queues. */
  repair(attachment: NodeAttachment): string;
  /** Whether its ADD made a way to the address, as far as is known: a repair puts back no other. */
  reaches(attachment: NodeAttachment, address: string): boolean;
  /** Whether the address is that of a gateway which its ADD reported, as far as is known. */
  hasGateway(attachment: NodeAttachment, address: string): boolean;
  /** DEL and ADD. */
  remake(attachment: NodeAttachment): string;
  /** `remake` if a device of the host is not present, which `repair` does not make; else `repair`. */
  restore(attachment: NodeAttachment, present: readonly string[]): string;
}

/** The node and its containers. Close it to leave their namespaces. */
export class World {
  readonly model: NodeModel;
  readonly node: Site = Site.openNode();
  readonly #containers = new Map<string, Site | undefined>();
  readonly advice: Advice;
  /** Finds the other node whose pod has an address. */
  readonly findPeer: FindPeer;

  constructor(model: NodeModel, advice: Advice, findPeer: FindPeer) {
    this.model = model;
    this.advice = advice;
    this.findPeer = findPeer;
  }

  get attachments(): readonly NodeAttachment[] {
    return this.model.attachments.filter(({ state }) => state === 'attached');
  }

  /** Attachments by veth pairs, which are the only ones that packets are followed into. */
  get pairs(): readonly NodeAttachment[] {
    return this.attachments.filter(isPair);
  }

  /** Devices of the node that lead to containers: bridges, and ends of veth pairs. */
  get containerDevices(): readonly string[] {
    return this.pairs.flatMap(({ hostDevice }) => hostDevice?.master ?? hostDevice?.name ?? []);
  }

  /** The namespace of an attachment; undefined if it cannot be entered. */
  siteOf(attachment: NodeAttachment): Site | undefined {
    const { netns } = attachment;
    if (!this.#containers.has(netns)) this.#containers.set(netns, Site.open(titleOf(attachment), netns));
    return this.#containers.get(netns);
  }

  /** The attachment that has the address, by the result of its ADD or in the kernel. */
  ownerOf(address: string): NodeAttachment | undefined {
    return this.attachments.find(one => addressesOf(one).includes(address));
  }

  /** Command that makes again what the ADD of a container made. @param to undefined if that was no way to this address */
  repairOf({ path }: Site, to?: string): string | undefined {
    const all = this.attachments.filter(({ netns }) => netns === path);
    const own = to === undefined ? all : all.filter(one => this.advice.reaches(one, to));
    const lines = new Set(own.map(one => this.advice.repair(one)));
    return lines.size ? [...lines].join(' && ') : undefined;
  }

  /** Command for a missing route of the node: to its own container, or to a pod of another node. */
  routeCommand(site: Site, address: string): string | undefined {
    if (!site.isNode) return undefined;
    const owner = this.ownerOf(address);
    const present = site.links.map(({ name }) => name);
    if (owner !== undefined) return this.advice.restore(owner, present);
    return this.findPeer(address)
      ? 'catena daemon --status  # a daemon with the setting "nodes" makes the route, or logs why not'
      : undefined;
  }

  /** Brings a device up; the routes of a container's vanished when it went down. */
  upCommand(site: Site, device: string): string {
    const repair = device === 'lo' ? undefined : this.repairOf(site);
    return [site.up(device), ...(repair ? [repair] : [])].join(' && ');
  }

  close(): void {
    for (const site of this.#containers.values()) site?.close();
    this.node.close();
  }
}

/** The lower device of a macvlan may be one end of a pair as well. */
export function isPair({ device, hostDevice }: NodeAttachment): boolean {
  return hostDevice?.kind === 'veth' && (device?.kind ?? 'veth') === 'veth';
}

/** Without prefix length. */
export function addressesOf({ addresses, device }: NodeAttachment): string[] {
  return [...addresses, ...(device?.addresses ?? [])].map(text => text.replace(/\/.*/, ''));
}

/** One place that the packet passes. */
export type Hop = AnswerOf<'PacketWalk'>['hops'][number];

/** Behind the last one, it is not known where the packet goes. */
type Step = Hop & { readonly isLast?: true };

/** The walk as far as it goes: the value is what comes behind it. */
export type Walk<T = void> = Generator<Step, T>;

export type Outcome = 'arrives' | 'stopped' | 'unknown';

/** Takes the hops up to the first one that stops the packet. */
export function walkOn(walk: Walk<boolean>): { readonly outcome: Outcome; readonly hops: Hop[] } {
  const hops: Hop[] = [];
  for (let step = walk.next(); ; step = walk.next()) {
    if (step.done) {
      const isSure = step.value && hops.every(({ state }) => state === 'passes');
      return { outcome: isSure ? 'arrives' : 'unknown', hops };
    }
    const { isLast, ...hop } = step.value;
    hops.push(hop);
    if (hop.state === 'stops') return { outcome: 'stopped', hops };
    if (isLast) return { outcome: 'unknown', hops };
  }
}

/** Where a hop is, and which packet comes there. */
type Place = Pick<Site, 'name'>;
type Seen = Pick<Packet, 'isReply' | 'isEstablished'>;

/** On the way back there is only one hop, the reply, and its evidence tells where it is. */
function hop(
  state: Hop['state'],
  { name: at }: Place,
  { isReply, isEstablished }: Seen,
  name: Hop['name'],
  evidence: string,
  mend?: string,
): Hop {
  const isBack = isReply && !isEstablished;
  const whole = isBack && state !== 'passes' ? `${name}: ${evidence}` : evidence;
  const words = isEstablished ? `once the connection exists, ${evidence}` : whole;
  return { name: isBack ? 'reply' : name, at, state, evidence: words, ...defined({ mend }) };
}

type HopOf = (site: Place, packet: Seen, name: Hop['name'], evidence: string, mend?: string) => Hop;

export const passes: HopOf = (...told) => hop('passes', ...told);
export const stops: HopOf = (...told) => hop('stops', ...told);
export const unsure: HopOf = (...told) => hop('unknown', ...told);

export function deviceDown(site: Site, packet: Seen, device: string, mend = site.up(device)): Hop {
  return stops(site, packet, 'device', `"${device}" is down`, mend);
}

/** A hop that may lead the packet elsewhere, so nothing behind it is certain. */
export function lost(...told: Parameters<HopOf>): Step {
  return { ...unsure(...told), isLast: true };
}
