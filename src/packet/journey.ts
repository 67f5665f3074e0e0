// Which places does a packet pass on this node, and does its reply come back?
import type { Packet } from '../doctor/filter/packet.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { IFF_UP } from '../netlink/rtnl/link-header.ts';
import type { RouteLookup } from '../netlink/rtnl/route-lookup.ts';
import type { NodeAttachment } from '../node/model.ts';
import { titleOf } from '../node/words.ts';
import { bridged, crossToContainer, crossToNode, findBehind } from './crossing.ts';
import type { Walk } from './hop.ts';
import { listener } from './listener.ts';
import { leaveQueue } from './queue.ts';
import { hop } from './report.ts';
import { nextHop, routeIn, routeOut } from './route.ts';
import { type Passed, passHook } from './rules.ts';
import type { Site } from './site.ts';
import { judgeTranslation, type Mapping } from './translation.ts';
import type { World } from './world.ts';

/** The first packet as it came to a namespace and as it left. */
interface Connection {
  readonly site: Site;
  readonly before: Packet;
  readonly after: Packet;
}

/** A walk that is under way. Its value is whether the reply reaches the sender. */
export class Journey {
  readonly world: World;
  readonly #mapping: Mapping | undefined;
  /** What connection tracking of each namespace knows; a namespace may be passed twice. */
  readonly #connections: Connection[] = [];
  /** That of the reply, in the namespace where it is. */
  #known: Connection | undefined;
  #sections = 0;

  constructor(world: World, mapping: Mapping | undefined) {
    this.world = world;
    this.#mapping = mapping;
  }

  /** A packet that a process of the place sends. */
  *leave(site: Site, sent: Packet): Walk<boolean> {
    if (this.#isEndless()) return false;
    const repair = this.world.repairOf(site);
    const undone = this.#undo(site, sent);
    const way = yield* this.#routeOut(site, undone, repair);
    const source = undone.source ?? (way.source && this.world.render(way.source));
    const oif = site.link(way.oif);
    const packet: Packet = {
      ...undone,
      ...{ source, iif: undefined, oif: oif?.name, isLocal: site.has(undone.destination ?? '') },
      ...{ isFromLocal: true, isTranslated: false, labels: NO_LABELS },
    };
    const before = sent.isReply ? packet : { ...packet, source };
    const out = yield* this.#hook(site, 'output', packet);
    const changed = out.packet.destination !== packet.destination;
    const next = changed ? yield* this.#routeOut(site, out.packet, repair) : way;
    if (!sent.isReply && site.isNode) yield* judgeTranslation(site, packet, out, this.#mapping);
    yield* this.#judgeWay(site, out.packet, next);
    return yield* this.#out(site, { ...out.packet, oif: site.link(next.oif)?.name }, before, next);
  }

  /** A packet that arrives on a device. */
  *arrive(site: Site, seen: Packet, iif: Link): Walk<boolean> {
    if (this.#isEndless()) return false;
    const repair = this.world.repairOf(site);
    yield* this.#judgeUp(site, seen, iif);
    const undone = this.#undo(site, seen);
    const before: Packet = {
      ...undone,
      ...{ iif: iif.name, oif: undefined, isLocal: site.has(undone.destination ?? '') },
      ...{ isFromLocal: site.has(undone.source ?? ''), isTranslated: false, labels: NO_LABELS },
    };
    const into = yield* this.#hook(site, 'prerouting', before);
    if (!seen.isReply && site.isNode) yield* judgeTranslation(site, before, into, this.#mapping);
    const packet = { ...into.packet, isLocal: site.has(into.packet.destination ?? '') };
    if (!site.isNode && !packet.isLocal) {
      const words = `"${iif.name}" does not have the address ${packet.destination}`;
      yield hop(site, packet, 'device', 'stops', words, repair);
    }
    const way = yield* routeIn(site, packet, iif, repair);
    if (way.local) return yield* this.#deliver(site, packet, before);
    yield* this.#judgeWay(site, packet, way);
    const leaving = { ...packet, oif: site.link(way.oif)?.name };
    const forwarded = yield* this.#hook(site, 'forward', leaving);
    return yield* this.#out(site, forwarded.packet, before, way);
  }

  #hook(site: Site, name: Parameters<typeof passHook>[1], packet: Packet, isTranslating?: boolean) {
    const { containerDevices } = this.world;
    const seen = this.#known ? { ...packet, isTranslated: this.#known.after.isTranslated } : packet;
    return passHook(site, name, seen, {
      containerDevices,
      ...(isTranslating === undefined ? {} : { isTranslating }),
    });
  }

  *#routeOut(site: Site, packet: Packet, repair: string | undefined) {
    // The routes of a device vanish when it goes down.
    const down = site.links.find(({ name, flags }) => name !== 'lo' && !(flags & IFF_UP));
    if (!site.isNode) yield* this.#judgeUp(site, packet, down);
    return yield* routeOut(site, packet, repair);
  }

  *#judgeUp(site: Site, packet: Packet, link: Link | undefined): Walk {
    if (link === undefined || link.flags & IFF_UP) return;
    yield hop(
      site,
      packet,
      'device',
      'stops',
      `"${link.name}" is down`,
      this.world.upCommand(site, link.name),
    );
  }

  *#out(site: Site, packet: Packet, before: Packet, way: RouteLookup): Walk<boolean> {
    const left = yield* this.#hook(site, 'postrouting', packet);
    if (!packet.isReply) this.#connections.push({ site, before, after: left.packet });
    const restored = this.#restoreSource(left);
    if (way.local) {
      yield* this.#judgeUp(site, packet, site.link('lo'));
      const local = { ...restored, iif: 'lo', oif: undefined };
      yield* this.#hook(site, 'prerouting', local, false);
      return yield* this.#deliver(site, local, before);
    }
    return yield* this.#send(site, restored, way);
  }

  /** Out of the namespace, to a container, the node or the outside. */
  *#send(site: Site, packet: Packet, way: RouteLookup): Walk<boolean> {
    const link = site.link(way.oif);
    if (link === undefined) return false;
    const to = nextHop(way, packet);
    if (!site.isNode) {
      const end = yield* crossToNode(this.world, site, packet, link, to);
      if (end === undefined) return false;
      if ('iif' in end) return yield* this.arrive(this.world.node, packet, end.iif);
      yield* bridged(this.world, packet, end);
      return yield* this.#intoContainer(packet, end.to, to);
    }
    const behind = findBehind(this.world, link, to);
    if (behind) return yield* this.#intoContainer(packet, behind, to);
    yield* leaveQueue(site, packet, link, undefined);
    if (packet.isReply) {
      yield hop(site, packet, 'device', 'passes', `it leaves through "${link.name}"`);
      return true;
    }
    yield hop(site, packet, 'device', 'passes', `leaves through "${link.name}", next hop ${to}`);
    return yield* this.#fromOutside(site, packet, link);
  }

  *#intoContainer(packet: Packet, attachment: NodeAttachment, to: string): Walk<boolean> {
    const iif = yield* crossToContainer(this.world, packet, attachment, to);
    const site = this.world.siteOf(attachment);
    return iif && site ? yield* this.arrive(site, packet, iif) : false;
  }

  /** The node may send packets for a container elsewhere. */
  *#judgeWay(site: Site, packet: Packet, way: RouteLookup): Walk {
    const link = site.link(way.oif);
    const owner = this.world.ownerOf(packet.destination ?? '');
    if (!site.isNode || way.local || !link || !owner || findBehind(this.world, link, nextHop(way, packet)))
      return;
    const expected = site.link(owner.hostDevice?.master ?? owner.hostDevice?.name ?? '');
    if (expected && !(expected.flags & IFF_UP)) {
      const mend = `ip link set dev ${expected.name} up`;
      yield hop(site, packet, 'device', 'stops', `"${expected.name}" is down`, mend);
    }
    const words = `packets to ${packet.destination} of ${titleOf(owner)} leave through "${link.name}"`;
    yield hop(site, packet, 'route', 'stops', words, `catena repair ${owner.network}`);
  }

  *#fromOutside(site: Site, packet: Packet, link: Link): Walk<boolean> {
    const reply = answerTo(packet);
    if (site.has(reply.destination ?? '')) return yield* this.arrive(site, reply, link);
    const owner = this.world.ownerOf(reply.destination ?? '');
    const words = `${reply.destination} is not masqueraded`;
    if (owner?.policies.some(one => one.startsWith('masquerades'))) {
      const mend = `catena repair ${owner.network}`;
      yield hop(
        site,
        packet,
        'translation',
        'stops',
        `${words}, but network ${owner.network} asks for it`,
        mend,
      );
    }
    yield hop(site, reply, 'route', 'unknown', `${words}: hosts outside have to know the way to it`);
    return false;
  }

  *#deliver(site: Site, packet: Packet, before: Packet): Walk<boolean> {
    yield* this.#hook(site, 'input', packet);
    if (packet.isReply) {
      yield hop(site, packet, 'device', 'passes', 'it arrives');
      return true;
    }
    this.#connections.push({ site, before, after: packet });
    yield* listener(site, packet);
    return yield* this.leave(site, answerTo(packet));
  }

  /** A reply comes to the translated source; connection tracking restores the original one. */
  #undo(site: Site, packet: Packet): Packet {
    this.#known = this.#connections.find(
      ({ site: own, after }) =>
        packet.isReply &&
        own === site &&
        after.source === packet.destination &&
        after.destination === packet.source,
    );
    return this.#known ? { ...packet, destination: this.#known.before.source } : packet;
  }

  #restoreSource({ packet }: Passed): Packet {
    if (this.#known === undefined) return packet;
    const { destination, port } = this.#known.before;
    return { ...packet, source: destination, sourcePort: port };
  }

  /** More namespaces than any packet passes. */
  #isEndless(): boolean {
    return ++this.#sections > 20;
  }
}

/** No rule has labelled a new connection; the kernel has 128 labels. */
const NO_LABELS: readonly number[] = Array.from({ length: 16 }, () => 0);

function answerTo(packet: Packet): Packet {
  return {
    ...packet,
    ...{ source: packet.destination, destination: packet.source },
    ...{ sourcePort: packet.port, port: packet.sourcePort, isReply: true },
  };
}
