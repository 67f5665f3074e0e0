// How does a packet come from the node into a container, back, or to another container of the same bridge?
import type { Packet } from '../doctor/filter/packet.ts';
import { renderIp } from '../net/ip.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { IFF_LOWER_UP, IFF_UP } from '../netlink/rtnl/link-attrs.ts';
import type { NodeAttachment } from '../node/model.ts';
import { titleOf } from '../node/words.ts';
import { arriveQueue, leaveQueue } from './queue.ts';
import { type Hop, hop, type Walk } from './report.ts';
import { passHook } from './rules.ts';
import type { Site } from './site.ts';
import { addressesOf, type World } from './world.ts';

/** From one port of a bridge to another. */
export interface Bridged {
  readonly from: NodeAttachment;
  readonly to: NodeAttachment;
  readonly bridge: Link;
}

/** The container that a device of the node leads to by a veth pair. @param to the next hop */
export function findBehind(world: World, link: Link, to: string): NodeAttachment | undefined {
  return world.pairs.find(one => {
    const { master, name } = one.hostDevice ?? {};
    return master === undefined ? name === link.name : master === link.name && addressesOf(one).includes(to);
  });
}

/** @returns the device of the container on which the packet arrives; undefined if it cannot be followed */
export function* crossToContainer(
  world: World,
  packet: Packet,
  attachment: NodeAttachment,
  to: string,
): Walk<Link | undefined> {
  const { node } = world;
  const { hostDevice, ifname } = attachment;
  const port = node.link(hostDevice?.name ?? '');
  const site = world.siteOf(attachment);
  if (site === undefined || port === undefined) {
    yield hop(
      node,
      packet,
      'device',
      'unknown',
      `the namespace of ${attachment.containerId} cannot be entered`,
    );
    return undefined;
  }
  const inner = site.link(ifname);
  if (inner === undefined) {
    const mend = world.advice.remake(attachment);
    yield hop(site, packet, 'device', 'stops', `it has no device "${ifname}"`, mend);
    return undefined;
  }
  yield* judgeNeighbour(node, packet, { device: hostDevice?.master ?? port.name, to, mac: inner.mac });
  yield* judgePort(node, packet, port);
  yield* leaveQueue(node, packet, port, shaped(world, attachment));
  if (!packet.isReply && inner.flags & IFF_UP) {
    const devices = [hostDevice?.master, port.name].filter(name => name !== undefined);
    yield hop(
      node,
      packet,
      'device',
      'passes',
      `${devices.map(name => `"${name}"`).join(', ')} and "${ifname}" are up`,
    );
  }
  return inner;
}

/** @returns the device of the node on which the packet arrives, or the container that has the next hop */
export function* crossToNode(
  world: World,
  site: Site,
  packet: Packet,
  link: Link,
  to: string,
): Walk<{ readonly iif: Link } | Bridged | undefined> {
  const { node } = world;
  const from = world.attachments.find(one => one.netns === site.path && one.ifname === link.name);
  const port = node.link(from?.hostDevice?.name ?? '');
  if (from === undefined || port === undefined || link.kind !== 'veth') {
    const words = `packets cannot be followed through "${link.name}"${link.kind ? `, a ${link.kind} device` : ''}`;
    yield hop(site, packet, 'device', 'unknown', words);
    return undefined;
  }
  yield* leaveQueue(site, packet, link, undefined);
  yield* judgePort(node, packet, port);
  const bridge = node.link(port.master);
  if (bridge === undefined) return { iif: port };
  yield* arriveQueue(node, packet, port, shaped(world, from));
  if (!(bridge.flags & IFF_UP))
    yield hop(
      node,
      packet,
      'device',
      'stops',
      `"${bridge.name}" is down`,
      `ip link set dev ${bridge.name} up`,
    );
  const isGateway = node.tables.addresses.some(
    one => one.index === bridge.index && renderIp(one.cidr.ip) === to,
  );
  if (isGateway) {
    yield* judgeNeighbour(site, packet, { device: link.name, to, mac: bridge.mac });
    return { iif: bridge };
  }
  const other = findBehind(world, bridge, to);
  if (other) {
    yield* judgeNeighbour(site, packet, { device: link.name, to, mac: other.device?.mac });
    return { from, to: other, bridge };
  }
  const known = new Set(world.attachments.map(({ hostDevice }) => hostDevice?.index));
  const isClosed = node.links.every(one => one.master !== bridge.index || known.has(one.index));
  const words = `no device on "${bridge.name}" has ${to}, to which it sends`;
  if (isClosed) yield hop(site, packet, 'neighbour', 'stops', words, world.advice.repair(from));
  yield hop(site, packet, 'neighbour', 'unknown', `${words}, as far as containers go`);
  return undefined;
}

/** A container that packets do not come to through a veth pair: its device is gone, or of another kind. */
export function unfollowed(world: World, packet: Packet, owner: NodeAttachment): Hop {
  const inside = world.siteOf(owner);
  if (inside !== undefined && inside.link(owner.ifname) === undefined) {
    const words = `it has no device "${owner.ifname}"`;
    return hop(inside, packet, 'device', 'stops', words, world.advice.remake(owner));
  }
  const kind = owner.device?.kind ? `of kind ${owner.device.kind}` : 'that cannot be read';
  const words = `${titleOf(owner)} has a device ${kind}, which is not followed`;
  return hop(world.node, packet, 'device', 'unknown', words);
}

/** Inside a bridge. Rules about forwarded packets see it, too, if the node says so. */
export function* bridged({ node }: World, packet: Packet, { from, to, bridge }: Bridged): Walk {
  const ports = [from, to].map(one => node.link(one.hostDevice?.name ?? ''));
  if (ports.every(port => isIsolated(port)))
    yield hop(node, packet, 'policy', 'stops', `both are isolated ports of "${bridge.name}"`);
  const program = packet.family === 4 ? 'iptables' : 'ip6tables';
  if (node.sysctl(`net/bridge/bridge-nf-call-${program}`) !== '1') return;
  const inside = { ...packet, iif: bridge.name, oif: bridge.name, isTranslated: false, isFromLocal: false };
  yield* passHook(node, 'forward', inside, { containerDevices: [bridge.name] });
}

function isIsolated(port: Link | undefined): boolean {
  return portDataOf(port)?.isolated === 1;
}

function portDataOf(port: Link | undefined) {
  const data = port?.attrs.linkinfo?.portData;
  return data instanceof Uint8Array ? undefined : data;
}

/** linux/if_bridge.h, BR_STATE_* */
const STATES = ['disabled', 'listening', 'learning', 'forwarding', 'blocking'];
const FORWARDING = 3;

function* judgePort(node: Site, packet: Packet, port: Link): Walk {
  const { name, flags } = port;
  if (!(flags & IFF_UP))
    yield hop(node, packet, 'device', 'stops', `"${name}" is down`, `ip link set dev ${name} up`);
  const { state = FORWARDING } = portDataOf(port) ?? {};
  // Without a carrier, a port is disabled, and its other end is down.
  if (state === FORWARDING || !(flags & IFF_LOWER_UP)) return;
  const words = `"${name}" is in state ${STATES[state] ?? state} of its bridge's spanning tree`;
  yield hop(node, packet, 'device', 'stops', words);
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
  const mend = site.command(`ip neigh del ${to} dev ${device}`);
  yield hop(site, packet, 'neighbour', 'stops', words, mend);
}

/** Only rates that a network asks for are made again by its repair. */
export function shaped({ advice }: World, attachment: NodeAttachment): string | undefined {
  const { ingressBits, egressBits } = attachment.rates;
  return ingressBits === undefined && egressBits === undefined ? undefined : advice.repair(attachment);
}
