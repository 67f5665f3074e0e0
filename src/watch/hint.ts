// What does a notification say about attachments?
import { type AttachmentId, findOwner } from '../cni/attachment.ts';
import type { Envelope } from '../netlink/codec/message.ts';
import { decodeNftAddition, decodeNftDeletion } from '../netlink/nft/notification.ts';
import type { PeerMessages } from '../netlink/peer-monitor.ts';
import { decodeRouteNotification, type RouteNotification } from '../netlink/rtnl/notification.ts';

/** What may have been damaged. */
export type Hint =
  /** An attachment named by an element that was deleted. */
  | { readonly of: 'owner'; readonly owner: AttachmentId }
  /** Attachments that have a device on the host, or a route or address there. */
  | { readonly of: 'device'; readonly name: string }
  /** Attachments that have a device on the host whose other end has changed, in a namespace where only containers act. */
  | { readonly of: 'inside'; readonly name: string }
  /** Every attachment. `isLikely`: what was removed is part of attachments; otherwise it only may be. */
  | { readonly of: 'all'; readonly isLikely: boolean; readonly why: string };

/** Prefix of the tables that our plugins make. */
const OWN = 'catena_';
/**
 * Tables of the reference's plugins, those of iptables-nft, and firewalld's, which has pods as sources of a zone: rules of
 * attachments are among many others there.
 */
const SHARED = /^(cni_.*|nat|filter|mangle|raw|security|firewalld)$/;

/**
 * A firewalld that starts, or has reloaded, rejects pods that it does not know. While it reloads, nothing of it exists, so what was checked
 * then is checked again. With iptables its rules are in this chain.
 */
const FIREWALLD = { table: 'firewalld', chain: 'FORWARD_ZONES' };

/** Hints from notifications of nf_tables. An element of another owner's table, or a rule added by others, is none. */
export function hintsOfRules(messages: readonly Envelope[]): Hint[] {
  const hints: Hint[] = [];
  for (const message of messages) {
    const { table: added, chain } = decodeNftAddition(message) ?? {};
    if (added === FIREWALLD.table || chain === FIREWALLD.chain)
      hints.push({ of: 'all', isLikely: false, why: 'firewalld' });
    const deletion = decodeNftDeletion(message, table => table.startsWith(OWN) || SHARED.test(table));
    if (deletion === undefined) continue;
    const { table, comments } = deletion;
    const isLikely = table.startsWith(OWN);
    const owners = comments?.map(findOwner);
    if (owners?.length && owners.every(owner => owner !== undefined))
      hints.push(...owners.map(owner => ({ of: 'owner', owner }) as const));
    // Elements that count the users of a thing name none of them.
    else hints.push({ of: 'all', isLikely: isLikely && owners === undefined, why: `table "${table}"` });
  }
  return hints;
}

/** A device of the host. */
export interface HostDevice {
  readonly index: number;
  readonly name: string;
  readonly master: number;
  /** Index of its other end, in the namespace that has this number here; undefined if that is here, too. */
  readonly peer: number;
  readonly nsid: number | undefined;
}

/** A device of the host, and how its other end was when it was last heard of. */
type Known = Omit<HostDevice, 'index'> & { inside: string };

/** Hints from notifications about devices. It remembers the names of devices: other messages have only their index. */
export class DeviceHints {
  readonly #known = new Map<number, Known>();
  /** By where the other end is. */
  readonly #ends = new Map<string, Known>();

  /** @param devices that exist when the first message is read */
  constructor(devices: readonly HostDevice[]) {
    this.reset(devices);
  }

  reset(devices: readonly HostDevice[]): void {
    this.#known.clear();
    this.#ends.clear();
    for (const { index, ...device } of devices) this.#learn(index, device);
  }

  /** Hints from what other namespaces notified: one for each device whose other end has changed, or lost something. */
  hintsInside(notifications: readonly PeerMessages[]): Hint[] {
    const names = new Set<string>();
    for (const { nsid, messages } of notifications) {
      for (const message of messages) {
        const change = decodeRouteNotification(message);
        const device = change && this.#ends.get(endOf(nsid, change.index));
        if (device && hasChanged(device, change)) names.add(device.name);
      }
    }
    return [...names].map(name => ({ of: 'inside', name }));
  }

  #learn(index: number, device: Omit<HostDevice, 'index'>): void {
    const { inside = '' } = this.#known.get(index) ?? {};
    this.#forget(index);
    const known = { ...device, inside };
    this.#known.set(index, known);
    if (device.nsid !== undefined) this.#ends.set(endOf(device.nsid, device.peer), known);
  }

  #forget(index: number): void {
    const { nsid, peer } = this.#known.get(index) ?? {};
    this.#known.delete(index);
    if (nsid !== undefined) this.#ends.delete(endOf(nsid, peer));
  }

  hintsOf(messages: readonly Envelope[]): Hint[] {
    return messages.flatMap(message => this.#hintOf(message) ?? []);
  }

  #hintOf(message: Envelope): Hint | undefined {
    const change = decodeRouteNotification(message);
    if (change === undefined) return undefined;
    if (change.what === 'forwarding' && change.index === undefined)
      return { of: 'all', isLikely: true, why: 'forwarding' };
    const before = this.#known.get(change.index ?? 0);
    if (change.what !== 'device') return before && { of: 'device', name: before.name };
    const { index, name, isGone, isUp, master, peer, nsid } = change;
    if (isGone) this.#forget(index);
    else this.#learn(index, { name, master, peer, nsid });
    const wasRenamed = before !== undefined && before.name !== name;
    const hasLeft = before !== undefined && before.master !== 0 && before.master !== master;
    if (!isGone && isUp && !wasRenamed && !hasLeft) return undefined;
    return { of: 'device', name: wasRenamed ? before.name : name };
  }
}

function endOf(nsid: number, peer: number | undefined): string {
  return `${nsid} ${peer}`;
}

/** Whether something was removed from the other end of the device, or its state, hardware address or MTU is not what was known. */
function hasChanged(device: Known, change: RouteNotification): boolean {
  if (change.what !== 'device') return change.what === 'address' || change.what === 'route';
  const { name, isGone, isUp, mac, mtu } = change;
  const now = [name, isGone, isUp, mac, mtu].join(' ');
  if (now === device.inside) return false;
  device.inside = now;
  return true;
}
