// Which namespaces does a packet come to on this node, and whose are the addresses?
import type { FindPeer } from '../../between/note.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { titleOf } from '../words.ts';
import { Site } from './site.ts';

/** Commands that make an attachment as its ADD made it. */
export interface Advice {
  /** Puts back addresses, routes, rules and queues. */
  repair(attachment: NodeAttachment): string;
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

  /** Command that makes again what the ADD of a container made. */
  repairOf({ path }: Site): string | undefined {
    const own = this.attachments.filter(({ netns }) => netns === path);
    const lines = new Set(own.map(one => this.advice.repair(one)));
    return lines.size ? [...lines].join(' && ') : undefined;
  }

  /** Command for a missing route of the node: to its own container, or to a pod of another node. */
  routeCommand(site: Site, address: string): string | undefined {
    if (!site.isNode) return undefined;
    const owner = this.ownerOf(address);
    if (owner !== undefined)
      return this.advice.restore(
        owner,
        site.links.map(({ name }) => name),
      );
    return this.findPeer(address)
      ? 'catena daemon --status  # a daemon with the setting "nodes" makes the route, or logs why not'
      : undefined;
  }

  /** Brings a device up; the routes of a container's vanished when it went down. */
  upCommand(site: Site, device: string): string {
    const up = site.command(`ip link set dev ${device} up`);
    const repair = device === 'lo' ? undefined : this.repairOf(site);
    return repair === undefined ? up : `${up} && ${repair}`;
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
