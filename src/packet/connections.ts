// What does connection tracking know of the connection, in each namespace that the packet has passed?
import type { Packet } from '../doctor/filter/packet.ts';
import type { Site } from './site.ts';

/** The first packet as it came to a namespace and as it left. */
interface Connection {
  readonly site: Site;
  readonly before: Packet;
  readonly after: Packet;
}

/** The connections of one walk; a namespace may be passed twice. */
export class Connections {
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
