// What does a notification about a device say about attachments?
import type { Envelope } from '../netlink/codec/message.ts';
import type { PeerMessages } from '../netlink/peer-monitor.ts';
import { decodeRouteNotification, type RouteNotification } from '../netlink/rtnl/notification.ts';
import type { Hint, OtherEnd } from './hint.ts';

/** A device of the host. */
export interface HostDevice {
  readonly index: number;
  readonly name: string;
  readonly isUp: boolean;
  readonly master: number;
  /** Index of its other end, in the namespace that has this number here; undefined if that is here, too. */
  readonly peer: number;
  readonly nsid: number | undefined;
}

/** The other end of a device, when it was last heard of. */
type Inside = Omit<OtherEnd, 'hasOtherMtu'> & { readonly isGone: boolean; readonly mtu: number };

/** A device of the host. */
interface Known extends Omit<HostDevice, 'index'> {
  /** It was made while we listened. An ADD makes interfaces, and then sets them up. */
  readonly isNew: boolean;
  inside: Inside | undefined;
}

/** Hints from notifications about devices. It remembers the names of devices: other messages have only their index. */
export class DeviceHints {
  readonly #known = new Map<number, Known>();
  /** By where the other end is. */
  readonly #ends = new Map<string, Known>();

  /** Some devices may be unknown that are not new. */
  #isPartial = false;

  /** @param devices that exist when the first message is read */
  constructor(devices: readonly HostDevice[]) {
    this.reset(devices);
  }

  /** @param devices undefined if they cannot be listed: they are learned from notifications again */
  reset(devices: readonly HostDevice[] | undefined): void {
    this.#known.clear();
    this.#ends.clear();
    this.#isPartial = devices === undefined;
    if (devices === undefined) return;
    for (const { index, ...device } of devices) this.#learn(index, device, false);
  }

  /** Hints from what other namespaces notified, about devices whose other end has changed, or lost something. */
  hintsInside(notifications: readonly PeerMessages[]): Hint[] {
    const hints: Hint[] = [];
    for (const { nsid, messages } of notifications) {
      for (const message of messages) {
        const change = decodeRouteNotification(message);
        const device = change && this.#ends.get(endOf(nsid, change.index));
        if (device) hints.push(...hintsAbout(device, change));
      }
    }
    return hints;
  }

  #learn(index: number, device: Omit<HostDevice, 'index'>, isNew: boolean): void {
    const before = this.#known.get(index);
    this.#forget(index);
    const known = { ...device, isNew: before?.isNew ?? isNew, inside: before?.inside };
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
    else this.#learn(index, { name, isUp, master, peer, nsid }, !this.#isPartial);
    const wasRenamed = before !== undefined && before.name !== name;
    const hasLeft = before !== undefined && before.master !== 0 && before.master !== master;
    // One that was never up is still being made.
    const wentDown = !isUp && (before?.isUp ?? this.#isPartial);
    if (isGone || wentDown || wasRenamed || hasLeft)
      return { of: 'device', name: wasRenamed ? before.name : name };
    return before === undefined ? { of: 'arrival' } : undefined;
  }
}

function endOf(nsid: number, peer: number | undefined): string {
  return `${nsid} ${peer}`;
}

/** Whether something was removed from the other end of the device, or its state is not what was known. */
function hintsAbout(device: Known, change: RouteNotification): Hint[] {
  const hint = { of: 'inside', name: device.name } as const;
  if (change.what !== 'device') return change.what === 'address' || change.what === 'route' ? [hint] : [];
  const before = device.inside;
  const { name, isGone, isUp, mac, mtu } = change;
  device.inside = { name, isGone, isUp, mac, mtu };
  if (before !== undefined && isSame(before, device.inside)) return [];
  if (isGone) return [hint];
  // As on the host.
  if (device.isNew && !isUp && before?.isUp !== true) return [];
  return [{ ...hint, end: { name, isUp, mac, hasOtherMtu: before?.isUp === true && before.mtu !== mtu } }];
}

function isSame(a: Inside, b: Inside): boolean {
  return (
    a.name === b.name && a.isGone === b.isGone && a.isUp === b.isUp && a.mac === b.mac && a.mtu === b.mtu
  );
}
