// Which hop stops a packet between two ends?

import type { FindPeer } from '../../between/note.ts';
import { cidrContains, findIp, isIp, parseIp, renderIp } from '../../net/ip.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import { lookUpRoute, type RouteLookup } from '../../netlink/rtnl/route.ts';
import { type Packet, PROTOCOLS } from '../doctor/filter/packet.ts';
import { CLIENT_PORT, isAny, OUTSIDE } from '../doctor/filter/walk.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { titleOf } from '../words.ts';
import { Journey, type Mapping } from './journey.ts';
import {
  type Advice,
  addressesOf,
  type Hop,
  type Outcome,
  passes,
  type Site,
  stops,
  unsure,
  type Walk,
  World,
  walkOn,
} from './site.ts';

export type From =
  | { readonly kind: 'outside'; readonly address?: string }
  | { readonly kind: 'node' }
  | { readonly kind: 'container'; readonly containerId: string };

export interface To {
  /** `outside`: an address that no container has; it may be one of the node. */
  readonly kind: 'outside' | 'node' | 'container';
  readonly containerId?: string;
  /** Undefined for any that fits. */
  readonly address?: string;
  readonly port: number;
  /** `icmp`: an echo request, without ports. */
  readonly protocol: 'tcp' | 'udp' | 'icmp';
  /** For names, which have addresses of both families. */
  readonly family: 4 | 6;
}

/** Finds the id of a container by what an operator calls it. @throws CniError 3 */
type FindContainer = (given: string) => string;

/** `outside`, `node`, an address, or a container. */
export function parseFrom(text: string, model: NodeModel, find: FindContainer): From {
  if (text === 'outside' || text === 'node') return { kind: text };
  if (!isIp(text)) return { kind: 'container', containerId: find(text) };
  const owner = ownerOf(model, text);
  return owner === undefined
    ? { kind: 'outside', address: canonical(text) }
    : { kind: 'container', containerId: owner };
}

const TO = /^(?:(?:\[(?<v6>[^\]]+)\]|(?<host>[^:]*)):)?(?<port>\d{1,5})(?:\/(?<protocol>tcp|udp))?$/;

/** `8080`, `:8080`, `db:5432`, `10.22.0.7:80`, `[fd00::7]:53/udp`; undefined if it is none of them. */
export function parseTo(text: string, family: 4 | 6, model: NodeModel, find: FindContainer): To | undefined {
  const { v6, host = v6 ?? '', port: digits, protocol } = TO.exec(text)?.groups ?? {};
  const port = Number(digits);
  if (!(port > 0 && port < 65_536) || (v6 !== undefined && !isIp(v6))) return undefined;
  const rest = { port, protocol: protocol === 'udp' ? 'udp' : 'tcp', family } as const;
  if (host === '' || host === 'node') return { kind: 'node', ...rest };
  if (!isIp(host)) return { kind: 'container', containerId: find(host), ...rest };
  const address = canonical(host);
  const owner = ownerOf(model, address);
  return owner === undefined
    ? { kind: 'outside', address, ...rest }
    : { kind: 'container', containerId: owner, address, ...rest };
}

function ownerOf({ attachments }: NodeModel, text: string): string | undefined {
  const address = canonical(text);
  const own = attachments.filter(({ state }) => state === 'attached');
  return own.find(one => addressesOf(one).includes(address))?.containerId;
}

function canonical(text: string): string {
  const ip = findIp(text);
  return ip === undefined ? text : renderIp(ip);
}

/** Follows the first packet of a connection, and the reply. */
export function whyNot(
  model: NodeModel,
  from: From,
  to: To,
  advice: Advice,
  findPeer: FindPeer,
): { readonly outcome: Outcome; readonly hops: Hop[] } {
  const world = new World(model, advice, findPeer);
  try {
    return walkOn(begin(world, from, to));
  } finally {
    world.close();
  }
}

function* begin(world: World, from: From, to: To): Walk<boolean> {
  const { node } = world;
  const family = familyOf(world, from, to);
  const isEcho = to.protocol === 'icmp';
  const isNode = !isEcho && (to.kind === 'node' || (to.address !== undefined && node.has(to.address)));
  const mapping = isNode ? yield* findMapping(world, to, family) : undefined;
  const destination = mapping?.hostIP ?? destinationOf(world, from, to, family);
  const isReply = false;
  if (destination === undefined) {
    yield stops(node, { isReply }, 'mapping', `the destination has no IPv${family} address`);
    return false;
  }
  const packet: Packet = {
    family,
    ...{ iif: undefined, oif: undefined, source: undefined, destination, isLocal: false },
    protocol: PROTOCOLS[isEcho && family === 6 ? 'icmpv6' : to.protocol] ?? 0,
    ...{ sourcePort: CLIENT_PORT, port: to.port, isReply, isTranslated: false },
  };
  const start = yield* findStart(world, from, packet);
  if (start === undefined) return false;
  const { site, sent, iif } = start;
  const journey = new Journey(world, mapping);
  const arrives = yield* iif ? journey.arrive(site, sent, iif) : journey.leave(site, sent);
  return arrives && (yield* journey.continue());
}

interface Start {
  readonly site: Site;
  readonly sent: Packet;
  /** The device on which it comes from outside. */
  readonly iif?: Link;
}

function* findStart(world: World, from: From, packet: Packet): Walk<Start | undefined> {
  const { node } = world;
  if (from.kind === 'node') return { site: node, sent: packet };
  if (from.kind === 'container') {
    const [first] = world.attachments.filter(one => one.containerId === from.containerId);
    const site = first && world.siteOf(first);
    if (site) return { site, sent: packet };
    yield unsure(node, packet, 'device', `the namespace of ${from.containerId} cannot be entered`);
    return undefined;
  }
  const source = from.address ?? OUTSIDE[packet.family];
  const iif = arrivalOf(world, source);
  if (iif) return { site: node, sent: { ...packet, source }, iif };
  const words = `the node has no route to ${source}: a packet of the node itself is followed`;
  yield unsure(node, packet, 'route', words);
  return { site: node, sent: packet };
}

/** That of an address that is given; otherwise IPv6 where it is wanted, and where containers have nothing else in common. */
function familyOf({ attachments }: World, from: From, to: To): 4 | 6 {
  const address = to.address ?? (from.kind === 'outside' ? from.address : undefined);
  if (address !== undefined) return address.includes(':') ? 6 : 4;
  const ends = [from, to].flatMap(end => (end.kind === 'container' ? [end.containerId] : []));
  const has = (family: 4 | 6) =>
    ends.every(id => attachments.some(one => one.containerId === id && addressesOf(one).some(isOf(family))));
  return to.family === 4 && !has(4) && has(6) ? 6 : to.family;
}

function isOf(family: 4 | 6): (address: string) => boolean {
  return address => address.includes(':') === (family === 6);
}

function destinationOf({ node, attachments }: World, from: From, to: To, family: 4 | 6): string | undefined {
  if (to.address !== undefined) return to.address;
  if (to.kind === 'container') {
    const own = attachments.filter(one => one.containerId === to.containerId);
    const networks =
      from.kind === 'container'
        ? attachments.filter(one => one.containerId === from.containerId).map(one => one.network)
        : [];
    const nearest = own.toSorted((a, b) => rank(a) - rank(b));
    return nearest.flatMap(addressesOf).find(isOf(family));

    function rank({ network }: NodeAttachment): number {
      return networks.includes(network) ? 0 : 1;
    }
  }
  return addressOfNode(node, family);
}

/** The way to the Internet; undefined if there is none. */
export function uplinkOf(node: Site, family: 4 | 6): RouteLookup | undefined {
  const way = lookUpRoute(node.route, { destination: parseIp(OUTSIDE[family]) });
  return typeof way === 'number' ? undefined : way;
}

/** By which others know the node: of its uplink, if that has one. */
export function addressOfNode(node: Site, family: 4 | 6): string | undefined {
  const uplink = uplinkOf(node, family);
  return [...(uplink ? [node.link(uplink.oif)] : []), ...node.links].flatMap(
    link => node.addressOf(link, family) ?? [],
  )[0];
}

/** The port of a container that a port of the node leads to. */
function* findMapping(world: World, to: To, family: 4 | 6): Walk<Mapping | undefined> {
  const found = world.attachments.flatMap(attachment => {
    const address = addressesOf(attachment).find(isOf(family));
    const mapped = attachment.ports.find(
      ({ hostPort, protocol, hostIP }) =>
        hostPort === to.port &&
        protocol === to.protocol &&
        (isAny(hostIP) ||
          (hostIP.includes(':') === (family === 6) && [undefined, hostIP].includes(to.address))),
    );
    if (mapped === undefined || address === undefined) return [];
    const hostIP = isAny(mapped.hostIP) ? undefined : mapped.hostIP;
    return [{ attachment, address, hostIP, containerPort: mapped.containerPort }];
  });
  const [first] = found;
  const at = { name: 'node' };
  const isReply = false;
  if (first === undefined) {
    const listed = world.attachments.some(({ ports }) => ports.some(one => one.hostPort === to.port));
    const words = listed
      ? `port ${to.port} is mapped for another address, family or protocol only`
      : `no container has port ${to.port}, so it is one of the node`;
    yield passes(at, { isReply }, 'mapping', words);
    return undefined;
  }
  const { attachment, containerPort } = first;
  const words = `port ${to.port} leads to port ${containerPort} of ${titleOf(attachment)}`;
  yield passes(at, { isReply }, 'mapping', words);
  return { ...first, repair: world.advice.repair(attachment) };
}

/** The device whose subnet the address is in, or that of the default route. */
function arrivalOf({ node }: World, source: string) {
  const ip = parseIp(source);
  const near = node.tables.addresses.find(({ cidr }) => cidrContains(cidr, ip));
  if (near) return node.link(near.index);
  const way = uplinkOf(node, ip.family);
  return way && node.link(way.oif);
}
