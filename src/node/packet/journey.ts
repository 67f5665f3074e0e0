// Which places does a packet pass on this node, and does its reply come back?

import { readlinkSync } from 'node:fs';
import { attempt } from '../../cni/errors.ts';
import { namesIn, tryRead } from '../../files/read-file.ts';
import { asWord } from '../../net/interface.ts';
import { cidrContains, parseIp, renderCidr, renderIp } from '../../net/ip.ts';
import { IFF_LOWER_UP, IFF_UP, type Link, portDataOf, portStateOf } from '../../netlink/rtnl/link.ts';
import { type RouteLookup, RT_TABLE_MAIN } from '../../netlink/rtnl/route.ts';
import type { Listener } from '../../netlink/sock-diag.ts';
import { NO_LABELS, type Packet, PROTOCOLS } from '../doctor/filter/packet.ts';
import type { NodeAttachment } from '../model.ts';
import { titleOf } from '../words.ts';
import {
  arriveQueue,
  type HookName,
  leaveQueue,
  nextHop,
  type Passed,
  passBridge,
  passHook,
  routeIn,
  routeOut,
} from './hops.ts';
import {
  addressesOf,
  deviceDown,
  type Hop,
  isPair,
  lost,
  passes,
  type Site,
  stops,
  unsure,
  type Walk,
  type World,
} from './site.ts';

/** The rules of a hook, with the packet before and behind them. */
interface Pass {
  readonly site: Site;
  readonly name: HookName;
  readonly packet: Packet;
  readonly after: Packet;
}

/** A walk that is under way. Its value is whether the reply reaches the sender. */
export class Journey {
  readonly world: World;
  readonly #mapping: Mapping | undefined;
  readonly #connections = new Connections();
  /** The rules that the first packet has passed. */
  readonly #passes: Pass[] = [];
  /** The port of a bridge through which the packet came to the node. */
  #port: Link | undefined;
  #sections = 0;

  constructor(world: World, mapping: Mapping | undefined) {
    this.world = world;
    this.#mapping = mapping;
  }

  /** A packet that a process of the place sends. */
  *leave(site: Site, sent: Packet): Walk<boolean> {
    this.#count();
    const undone = this.#connections.enter(site, sent);
    const { destination = '' } = undone;
    const repair = this.world.repairOf(site, destination) ?? this.world.routeCommand(site, destination);
    const way = yield* this.#routeOut(site, undone, repair);
    const source = undone.source ?? (way.source && renderIp(way.source));
    const oif = site.link(way.oif);
    const packet: Packet = {
      ...undone,
      ...{ source, iif: undefined, oif: oif?.name, isLocal: site.has(undone.destination ?? '') },
      ...{ isFromLocal: true, isTranslated: false, labels: NO_LABELS, mark: undefined },
    };
    const out = yield* this.#hook(site, 'output', packet);
    const changed = out.packet.destination !== packet.destination;
    const next = changed ? yield* this.#routeOut(site, out.packet, repair) : way;
    if (!sent.isReply && site.isNode) yield* judgeTranslation(site, packet, out, this.#mapping);
    if (!(yield* this.#judgeWay(site, out.packet, next))) return false;
    return yield* this.#out(site, { ...out.packet, oif: site.link(next.oif)?.name }, packet, next);
  }

  /** A packet that arrives on a device. */
  *arrive(site: Site, seen: Packet, iif: Link): Walk<boolean> {
    this.#count();
    const repair = this.world.repairOf(site);
    yield* this.#judgeUp(site, seen, iif);
    const pair = site.isNode ? this.world.pairs.find(one => one.hostDevice?.name === iif.name) : undefined;
    yield* arriveQueue(site, seen, iif, pair && shaped(this.world, pair));
    const { destination } = this.#connections.enter(site, seen);
    const before: Packet = {
      ...seen,
      ...{ iif: iif.name, oif: undefined, isTranslated: false, labels: NO_LABELS, mark: undefined },
      isLocal: site.has(seen.destination ?? ''),
      isFromLocal: site.has(seen.source ?? ''),
    };
    const restored = seen.isReply ? { ...before, destination } : undefined;
    const into = yield* this.#hook(site, 'prerouting', before, restored);
    if (!seen.isReply && site.isNode) yield* judgeTranslation(site, before, into, this.#mapping);
    const packet = { ...into.packet, isLocal: site.has(into.packet.destination ?? '') };
    if (!site.isNode && !packet.isLocal) {
      const words = `"${iif.name}" does not have the address ${packet.destination}`;
      yield stops(site, packet, 'device', words, repair);
    }
    const advice = repair ?? this.world.routeCommand(site, packet.destination ?? '');
    const way = yield* routeIn(site, packet, iif, advice);
    if (way.local) return yield* this.#deliver(site, packet, before);
    if (!(yield* this.#judgeWay(site, packet, way))) return false;
    const leaving = { ...packet, oif: site.link(way.oif)?.name };
    const forwarded = yield* this.#hook(site, 'forward', leaving);
    return yield* this.#out(site, forwarded.packet, before, way);
  }

  /** What follows the reply passes the same rules, but not as a new connection. */
  *continue(): Walk<boolean> {
    const { containerDevices } = this.world;
    let mark: Packet['mark'];
    for (const { site, name, packet, after } of this.#passes) {
      if (name === 'output' || (name === 'prerouting' && packet.iif !== 'lo')) mark = undefined;
      const next = { ...packet, isEstablished: true, mark };
      const known = { ...after, isEstablished: true };
      const passed = yield* passHook(site, name, next, containerDevices, known);
      ({ mark } = passed.packet);
    }
    return true;
  }

  /** @param known the packet behind address translation, if that is known */
  *#hook(site: Site, name: HookName, packet: Packet, known?: Packet): Walk<Passed> {
    const seen = this.#connections.seen(packet);
    const behind = known && this.#connections.seen(known);
    const passed = yield* passHook(site, name, seen, this.world.containerDevices, behind);
    if (!packet.isReply) this.#passes.push({ site, name, packet: seen, after: passed.packet });
    return passed;
  }

  *#routeOut(site: Site, packet: Packet, repair: string | undefined) {
    const walk = routeOut(site, packet, repair);
    const first = walk.next();
    if (first.done) return first.value;
    // The routes of a device vanish when it goes down.
    const own = this.world.attachments.filter(({ netns, ifname }) => netns === site.path && ifname !== 'lo');
    for (const { ifname } of own) yield* this.#judgeUp(site, packet, site.link(ifname));
    yield first.value;
    return yield* walk;
  }

  *#judgeUp(site: Site, packet: Packet, link: Link | undefined): Walk {
    if (link && !(link.flags & IFF_UP))
      yield deviceDown(site, packet, link.name, this.world.upCommand(site, link.name));
  }

  *#out(site: Site, packet: Packet, before: Packet, way: RouteLookup): Walk<boolean> {
    const known = packet.isReply ? this.#connections.leave(packet) : undefined;
    const left = yield* this.#hook(site, 'postrouting', packet, known);
    this.#connections.note(site, before, left.packet);
    if (way.local) {
      yield* this.#judgeUp(site, packet, site.link('lo'));
      const local = { ...left.packet, iif: 'lo', oif: undefined };
      yield* this.#hook(site, 'prerouting', local, local);
      return yield* this.#deliver(site, local, before);
    }
    return yield* this.#send(site, left.packet, way);
  }

  /** Out of the namespace, to a container, the node or the outside. */
  *#send(site: Site, packet: Packet, way: RouteLookup): Walk<boolean> {
    const link = site.link(way.oif);
    if (link === undefined) {
      yield unsure(site, packet, 'route', `the route to ${packet.destination} leads to no device`);
      return false;
    }
    const to = nextHop(way, packet);
    if (!site.isNode) {
      const end = yield* crossToNode(this.world, site, packet, link, to);
      if (end === undefined) return false;
      if ('iif' in end) {
        this.#port = end.port;
        return yield* this.arrive(this.world.node, packet, end.iif);
      }
      yield* bridged(this.world, packet, end);
      return yield* this.#intoContainer(packet, end.to, to, true);
    }
    const behind = findBehind(this.world, link, to);
    if (behind) {
      if (packet.isTranslated && packet.iif === link.name) yield* judgeTurn(site, packet, this.#port, behind);
      return yield* this.#intoContainer(packet, behind, to);
    }
    yield* leaveQueue(site, packet, link, undefined);
    if (packet.isReply) {
      yield passes(site, packet, 'device', `it leaves through "${link.name}"`);
      return true;
    }
    yield passes(site, packet, 'device', `leaves through "${link.name}", next hop ${to}`);
    return yield* this.#fromOutside(site, packet, link);
  }

  *#intoContainer(packet: Packet, attachment: NodeAttachment, to: string, isBridged = false): Walk<boolean> {
    const iif = yield* crossToContainer(this.world, packet, attachment, to, isBridged);
    const site = this.world.siteOf(attachment);
    return iif && site ? yield* this.arrive(site, packet, iif) : false;
  }

  /** The node may send packets for a container elsewhere. @returns whether the packet can be followed */
  *#judgeWay(site: Site, packet: Packet, way: RouteLookup): Walk<boolean> {
    const link = site.link(way.oif);
    const owner = this.world.ownerOf(packet.destination ?? '');
    if (!site.isNode || way.local || link === undefined) return true;
    if (owner === undefined) {
      yield* judgePeer(this.world, packet, link.name);
      return true;
    }
    if (findBehind(this.world, link, nextHop(way, packet))) return true;
    if (owner.hostDevice === undefined || !isPair(owner)) {
      yield unfollowed(this.world, packet, owner);
      return false;
    }
    const expected = site.link(owner.hostDevice.master ?? owner.hostDevice.name);
    if (expected && !(expected.flags & IFF_UP)) yield deviceDown(site, packet, expected.name);
    const words = `packets to ${packet.destination} of ${titleOf(owner)} leave through "${link.name}"`;
    yield stops(site, packet, 'route', words, this.world.routeCommand(site, packet.destination ?? ''));
    return false;
  }

  *#fromOutside(site: Site, packet: Packet, link: Link): Walk<boolean> {
    if (packet.source === undefined) return false;
    const reply = answerTo(packet);
    const peer = this.world.findPeer(packet.destination ?? '');
    if (peer) {
      const words = `a pod of node "${peer.node}" has ${packet.destination}: what is there is not known here`;
      yield unsure(site, packet, 'route', words);
      return yield* this.arrive(site, reply, link);
    }
    if (site.has(reply.destination ?? '')) return yield* this.arrive(site, reply, link);
    const owner = this.world.ownerOf(reply.destination ?? '');
    const words = `${reply.destination} is not masqueraded`;
    if (owner?.policies.some(one => one.startsWith('masquerades'))) {
      const mend = this.world.advice.repair(owner);
      yield stops(site, packet, 'translation', `${words}, but network ${owner.network} asks for it`, mend);
    }
    yield unsure(site, reply, 'route', `${words}: hosts outside have to know the way to it`);
    return false;
  }

  *#deliver(site: Site, packet: Packet, before: Packet): Walk<boolean> {
    yield* this.#hook(site, 'input', packet);
    if (packet.isReply) {
      yield passes(site, packet, 'device', 'it arrives');
      return true;
    }
    this.#connections.note(site, before, packet);
    yield* listener(site, packet);
    // The hop that may have replaced it has told so.
    if (packet.source === undefined) return false;
    return yield* this.leave(site, answerTo(packet));
  }

  /** @throws RangeError for a loop that no kernel would follow either: packets die after 64 routers */
  #count(): void {
    if (++this.#sections > MOST_SECTIONS)
      throw new RangeError(`Cannot follow the packet: it comes to more than ${MOST_SECTIONS} namespaces`);
  }
}

/** More than any packet needs on one node. */
const MOST_SECTIONS = 64;

function answerTo(packet: Packet): Packet {
  return {
    ...packet,
    ...{ source: packet.destination, destination: packet.source },
    ...{ sourcePort: packet.port, port: packet.sourcePort, isReply: true },
  };
}

/** The first packet as it came to a namespace and as it left. */
interface Connection {
  readonly site: Site;
  readonly before: Packet;
  readonly after: Packet;
}

/** The connections of one walk; a namespace may be passed twice. */
class Connections {
  readonly #all: Connection[] = [];
  /** That of the reply, in the namespace where it is. */
  #known: Connection | undefined;

  /** Notes a packet that is not a reply. */
  note(site: Site, before: Packet, after: Packet): void {
    if (!after.isReply) this.#all.push({ site, before, after });
  }

  /** A reply comes to the translated source, and goes on to the original one. */
  enter(site: Site, packet: Packet): Packet {
    this.#known = this.#all.find(
      ({ site: own, after }) =>
        packet.isReply &&
        own === site &&
        after.source === packet.destination &&
        after.destination === packet.source,
    );
    return this.#known ? { ...packet, destination: this.#known.before.source } : packet;
  }

  /** What rules see of a packet in this namespace. */
  seen(packet: Packet): Packet {
    return this.#known ? { ...packet, isTranslated: this.#known.after.isTranslated } : packet;
  }

  /** A reply leaves with the original destination as its source. */
  leave(packet: Packet): Packet {
    if (this.#known === undefined) return packet;
    const { destination, port } = this.#known.before;
    return { ...packet, source: destination, sourcePort: port };
  }
}

/** Asks the kernel for the sockets of the namespace. */
function* listener(site: Site, packet: Packet): Walk {
  const { protocol, port } = packet;
  if (protocol === PROTOCOLS.icmp || protocol === PROTOCOLS.icmpv6) {
    yield* echo(site, packet);
    return;
  }
  const all = protocol === 6 || protocol === 17 ? site.listeners(protocol) : undefined;
  if (all === undefined) {
    yield unsure(site, packet, 'listener', 'its sockets cannot be read');
    return;
  }
  const own = all.filter(one => one.port === port);
  const iif = site.link(packet.iif ?? '');
  // One of a VRF takes what comes to each of its devices.
  const isHeard = ({ device }: Listener) => [0, iif?.index, iif?.master].includes(device);
  const takes = own.find(one => isHeard(one) && isOpen(one, packet));
  if (takes) {
    yield passes(site, packet, 'listener', `a process listens on ${renderIp(takes.address)} port ${port}`);
    return;
  }
  const others = own.map(one => {
    return `${renderIp(one.address)}${isHeard(one) ? '' : ` on "${site.link(one.device)?.name}"`}`;
  });
  const words = others.length
    ? `processes listen on port ${port} of ${others.join(', ')} only`
    : `no process listens on ${protocol === 6 ? 'TCP' : 'UDP'} port ${port}`;
  yield stops(site, packet, 'listener', words);
}

/** The kernel itself replies to echo requests. */
function* echo(site: Site, packet: Packet): Walk {
  const name = `net.ipv${packet.family}.${packet.family === 4 ? 'icmp_echo_ignore_all' : 'icmp.echo_ignore_all'}`;
  if (site.sysctl(name.replaceAll('.', '/')) === '1')
    yield stops(site, packet, 'listener', `${name} = 1`, site.command(`sysctl -w ${name}=0`));
}

function isOpen({ address, onlyV6 }: Listener, { family, destination }: Packet): boolean {
  if (address.value === 0n) return address.family === family || (address.family === 6 && !onlyV6);
  return renderIp(address) === destination;
}

/** Without a route to the block, the packet takes a wider one, such as the default route, and gets lost there. */
function* judgePeer(world: World, packet: Packet, device: string): Walk {
  const { destination = '' } = packet;
  const { node } = world;
  const peer = world.findPeer(destination);
  if (peer === undefined) return;
  const ip = parseIp(destination);
  const routes = node.tables.routes.filter(
    ({ dst, table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN && cidrContains(dst, ip),
  );
  const smallest = Math.max(...routes.map(({ dst }) => dst.prefix), 0);
  if (smallest >= peer.block.prefix) return;
  const words = `${destination} is an address of node "${peer.node}", but no route leads to its block ${renderCidr(peer.block)}: the packet leaves through "${device}" with a wider one`;
  yield stops(node, packet, 'route', words, world.routeCommand(node, destination));
}

/** A port of the node that leads to a container, as its ADD asked for. */
export interface Mapping {
  /** Command that makes its rules again. */
  readonly repair: string;
  readonly address: string;
  /** The only address of the node that leads there. */
  readonly hostIP: string | undefined;
  readonly containerPort: number;
}

/** Podman's monitor keeps the ports of its container from others, and reads nothing that comes there. */
function isOnlyHeld(inode: number): boolean {
  const names = namesOfHolders(inode);
  return names.length > 0 && names.every(name => name === 'conmon');
}

/** Names of the processes of this node that have a socket open, as far as this user may look. @param inode of the socket */
function namesOfHolders(inode: number): string[] {
  return namesIn('/proc')
    .filter(name => /^\d+$/.test(name))
    .flatMap(pid => {
      const dir = `/proc/${pid}/fd`;
      const isIt = (fd: string) => attempt(() => readlinkSync(`${dir}/${fd}`)) === `socket:[${inode}]`;
      return namesIn(dir).some(isIt) ? [tryRead(`/proc/${pid}/comm`)?.trim() ?? ''] : [];
    });
}

/** Compares where the rules of the node led the packet with where they should have. */
export function* judgeTranslation(
  node: Site,
  before: Packet,
  { packet, by, undo }: Passed,
  mapping: Mapping | undefined,
): Walk {
  const to = `${renderHost(packet.destination)}:${packet.port}`;
  if (mapping === undefined) {
    if (by !== undefined) yield passes(node, before, 'translation', `${by} leads it to ${to}`);
    return;
  }
  const { address, containerPort, repair } = mapping;
  if (packet.destination === address && packet.port === containerPort) {
    yield passes(node, before, 'translation', `${by ?? 'the packet'} leads it to ${to}`);
    return;
  }
  if (by !== undefined) {
    yield stops(node, before, 'translation', `${by} leads it to ${to} instead`, undo ?? repair);
    return;
  }
  const protocol = before.protocol === 17 ? 17 : 6;
  const words = `no rule leads port ${before.port} to it`;
  const listeners = node.listeners(protocol)?.filter(({ port }) => port === before.port);
  if (listeners?.every(({ inode }) => isOnlyHeld(inode)))
    yield stops(node, before, 'translation', words, repair);
  else yield lost(node, before, 'translation', `${words}, but a process of the node may pass it on`);
}

function renderHost(address = ''): string {
  return address.includes(':') ? `[${address}]` : address;
}

/** From one port of a bridge to another. */
interface Bridged {
  readonly from: NodeAttachment;
  readonly to: NodeAttachment;
  readonly bridge: Link;
}

/** The container that a device of the node leads to by a veth pair. @param to the next hop */
function findBehind(world: World, link: Link, to: string): NodeAttachment | undefined {
  return world.pairs.find(one => {
    const { master, name } = one.hostDevice ?? {};
    return master === undefined ? name === link.name : master === link.name && addressesOf(one).includes(to);
  });
}

/** @returns the device of the container on which the packet arrives; undefined if it cannot be followed */
function* crossToContainer(
  world: World,
  packet: Packet,
  attachment: NodeAttachment,
  to: string,
  isBridged: boolean,
): Walk<Link | undefined> {
  const { node } = world;
  const { hostDevice, ifname } = attachment;
  const port = node.link(hostDevice?.name ?? '');
  const site = world.siteOf(attachment);
  if (site === undefined || port === undefined) {
    yield unsure(node, packet, 'device', `the namespace of ${attachment.containerId} cannot be entered`);
    return undefined;
  }
  const inner = site.link(ifname);
  if (inner === undefined) {
    yield stops(site, packet, 'device', `it has no device "${ifname}"`, world.advice.remake(attachment));
    return undefined;
  }
  yield* judgeNeighbour(node, packet, { device: hostDevice?.master ?? port.name, to, mac: inner.mac });
  yield* judgePort(node, packet, port);
  if (hostDevice?.master !== undefined) {
    const leaving = { ...packet, iif: undefined, oif: port.name };
    yield* passBridge(node, [...(isBridged ? [] : (['output'] as const)), 'postrouting'], leaving);
  }
  yield* leaveQueue(node, packet, port, shaped(world, attachment));
  if (!packet.isReply && inner.flags & IFF_UP) {
    const bridge = hostDevice?.master === undefined ? '' : `"${hostDevice.master}", `;
    yield passes(node, packet, 'device', `${bridge}"${port.name}" and "${ifname}" are up`);
  }
  return inner;
}

/** @returns the device of the node on which the packet arrives, or the container that has the next hop */
function* crossToNode(
  world: World,
  site: Site,
  packet: Packet,
  link: Link,
  to: string,
): Walk<{ readonly iif: Link; readonly port: Link } | Bridged | undefined> {
  const { node } = world;
  const from = world.attachments.find(one => one.netns === site.path && one.ifname === link.name);
  const port = node.link(from?.hostDevice?.name ?? '');
  if (from === undefined || port === undefined || link.kind !== 'veth') {
    const words = `packets cannot be followed through "${link.name}"${link.kind ? `, a ${link.kind} device` : ''}`;
    yield unsure(site, packet, 'device', words);
    return undefined;
  }
  yield* leaveQueue(site, packet, link, undefined);
  const bridge = node.link(port.master);
  // It disables its ports.
  if (bridge && !(bridge.flags & IFF_UP)) yield deviceDown(node, packet, bridge.name);
  yield* judgePort(node, packet, port);
  if (bridge === undefined) return { iif: port, port };
  yield* arriveQueue(node, packet, port, shaped(world, from));
  const isGateway = node.tables.addresses.some(
    one => one.index === bridge.index && renderIp(one.cidr.ip) === to,
  );
  const arriving = { ...packet, iif: port.name, oif: undefined };
  yield* passBridge(node, ['prerouting', ...(isGateway ? (['input'] as const) : [])], arriving);
  if (isGateway) {
    yield* judgeNeighbour(site, packet, { device: link.name, to, mac: bridge.mac });
    return { iif: bridge, port };
  }
  const other = findBehind(world, bridge, to);
  if (other) {
    yield* judgeNeighbour(site, packet, { device: link.name, to, mac: other.device?.mac });
    return { from, to: other, bridge };
  }
  const known = new Set(world.attachments.map(({ hostDevice }) => hostDevice?.index));
  const isClosed = node.links.every(one => one.master !== bridge.index || known.has(one.index));
  const words = `no device on "${bridge.name}" has ${to}, to which it sends`;
  // The gateway's address is made again by a repair, what another container would have is not.
  const mend = world.advice.hasGateway(from, to) ? world.advice.repair(from) : undefined;
  if (isClosed) yield stops(site, packet, 'neighbour', words, mend);
  yield unsure(site, packet, 'neighbour', `${words}, as far as containers go`);
  return undefined;
}

/** A container that packets do not come to through a veth pair: its device is gone, or of another kind. */
function unfollowed(world: World, packet: Packet, owner: NodeAttachment): Hop {
  const inside = world.siteOf(owner);
  if (inside !== undefined && inside.link(owner.ifname) === undefined) {
    return stops(inside, packet, 'device', `it has no device "${owner.ifname}"`, world.advice.remake(owner));
  }
  const kind = owner.device?.kind ? `of kind ${owner.device.kind}` : 'that cannot be read';
  const words = `${titleOf(owner)} has a device ${kind}, which is not followed`;
  return unsure(world.node, packet, 'device', words);
}

/** Inside a bridge. */
function* bridged({ node }: World, packet: Packet, { from, to, bridge }: Bridged): Walk {
  const ports = [from, to].map(one => node.link(one.hostDevice?.name ?? ''));
  yield* judgeIsolation(node, packet, ports, bridge.name);
  yield* passBridge(node, ['forward'], { ...packet, iif: ports[0]?.name, oif: ports[1]?.name });
  if (!isFilteredInside(node, packet)) return;
  const inside = { ...packet, iif: bridge.name, oif: undefined, isTranslated: false, isFromLocal: false };
  const { packet: led, by } = yield* passHook(node, 'prerouting', inside, [bridge.name]);
  if (by) yield unsure(node, packet, 'translation', `${by} leads it elsewhere`);
  yield* passHook(node, 'forward', { ...inside, mark: led.mark, oif: bridge.name }, [bridge.name]);
}

/** Whether the rules for routed packets see those within bridges, too (br_netfilter). */
function isFilteredInside(node: Site, { family }: Packet): boolean {
  return node.sysctl(`net/bridge/bridge-nf-call-${family === 4 ? 'iptables' : 'ip6tables'}`) === '1';
}

function* judgeIsolation(node: Site, packet: Packet, ports: (Link | undefined)[], bridge: string): Walk {
  if (ports.every(port => port && portDataOf(port)?.isolated === 1))
    yield stops(node, packet, 'policy', `both are isolated ports of "${bridge}"`);
}

/**
 * What rules forward to a container on the bridge that it came from: where they see packets within bridges, it is not routed but stays
 * in the bridge (br_nf_pre_routing_finish()), which sends nothing back through the same port, or from one isolated port to another.
 */
function* judgeTurn(
  node: Site,
  packet: Packet,
  from: Link | undefined,
  { hostDevice }: NodeAttachment,
): Walk {
  const bridge = hostDevice?.master;
  if (from === undefined || bridge === undefined || !isFilteredInside(node, packet)) return;
  if (from.name !== hostDevice?.name) {
    yield* judgeIsolation(node, packet, [from, node.link(hostDevice?.name ?? '')], bridge);
  } else if (portDataOf(from)?.hairpin !== 1) {
    const words = `"${bridge}" sends nothing back to "${from.name}", which is not in hairpin mode ("hairpinMode" of its network)`;
    yield stops(node, packet, 'device', words);
  }
}

function* judgePort(node: Site, packet: Packet, port: Link): Walk {
  const { name, flags } = port;
  if (!(flags & IFF_UP)) yield deviceDown(node, packet, name);
  const state = portStateOf(port);
  // Without a carrier, a port is disabled, and its other end is down.
  if (state === undefined || state === 'forwarding' || !(flags & IFF_LOWER_UP)) return;
  const words = `"${name}" is in state ${state} of its bridge's spanning tree`;
  const mend = state === 'disabled' ? `ip link set dev ${asWord(name)} type bridge_slave state 3` : undefined;
  yield stops(node, packet, 'device', words, mend);
}

/** Other entries of neighbours are confirmed before they are used for long. */
function* judgeNeighbour(
  site: Site,
  packet: Packet,
  { device, to, mac }: { readonly device: string; readonly to: string; readonly mac: string | undefined },
): Walk {
  const index = site.link(device)?.index;
  const fixed = site.tables.neighbours.find(one => one.index === index && renderIp(one.ip) === to);
  if (fixed?.mac === undefined || mac === undefined || fixed.mac === mac) return;
  const words = `a permanent entry has ${to} at ${fixed.mac}, but its device has ${mac}`;
  yield stops(site, packet, 'neighbour', words, site.command(`ip neigh del ${to} dev ${asWord(device)}`));
}

/** Only rates that a network asks for are made again by its repair. */
function shaped({ advice }: World, attachment: NodeAttachment): string | undefined {
  const { ingressBits, egressBits } = attachment.rates;
  return ingressBits === undefined && egressBits === undefined ? undefined : advice.repair(attachment);
}
