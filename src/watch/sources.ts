// From where does the daemon learn that something on this host has changed, and which attachments does that concern?
import { type FSWatcher, statSync, watch } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { type AttachmentId, findOwner, isSameContainer, keyOf } from '../cni/attachment.ts';
import { attempt } from '../cni/errors.ts';
import { objectsIn } from '../cni/json.ts';
import type { Envelope } from '../netlink/codec.ts';
import {
  decodeNftAddition,
  decodeNftDeletion,
  decodeNftSetAddition,
  decodeRouteNotification,
  NFT_GROUPS,
  type NftChange,
  openAll,
  openMonitor,
  openPeerMonitor,
  type PeerMessages,
  ROUTE_FILTER,
  ROUTE_GROUPS,
  type RouteNotification,
} from '../netlink/monitor.ts';
import { IFF_UP } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE } from '../netlink/socket.ts';
import { Tables } from '../netlink/tables.ts';
import type { WatchedAttachment } from './attachments.ts';

interface SourceEvents {
  hints(hints: readonly Hint[]): void;
  /** Notifications were lost: anything may have changed. */
  lost(why: string): void;
  /** Notifications cannot be received at present, which is tried again; `lost` follows. */
  interrupted(why: string): void;
  /** What changed inside namespaces of containers was not heard for a while. */
  missed(why: string): void;
  /** A file in the directory of network configurations has changed. */
  configured(): void;
}

/**
 * Listens on netlink sockets of this host's namespace, and to the configuration directory. A network namespace of a pod has no
 * socket: it would keep the namespace alive, and cost a descriptor and a buffer each. One socket hears of all of them.
 * @returns a function that stops this
 * @throws SystemError if the sockets cannot be opened
 */
export function openSources(confDir: string, events: SourceEvents): () => void {
  const hints = new DeviceHints([]);
  const tell = (read: () => readonly Hint[]): void => told(events, read, events.lost);
  const lost = (why: string): void => {
    // Without a list every attachment is checked now, too.
    hints.reset(attempt(listDevices));
    events.lost(why);
  };
  const { interrupted } = events;
  const devices = {
    changed: (them: readonly Envelope[]) => tell(() => hints.hintsOf(them)),
    lost,
    interrupted,
  };
  const rules = {
    changed: (them: readonly Envelope[]) => tell(() => hintsOfRules(them)),
    lost: events.lost,
    interrupted,
  };
  return openAll([
    () => openMonitor(NETLINK_ROUTE, ROUTE_GROUPS, devices, { filter: ROUTE_FILTER }),
    () => openMonitor(NETLINK_NETFILTER, NFT_GROUPS, rules),
    () => {
      // After the socket: a device that is made in between is listed, and reported once more.
      hints.reset(listDevices());
      return listenInside(hints, events);
    },
    () => watchDirectory(confDir, events.configured),
  ]);
}

function told(events: SourceEvents, read: () => readonly Hint[], unread: (why: string) => void): void {
  let found: readonly Hint[];
  try {
    found = read();
  } catch (error) {
    unread((error as Error).message);
    return;
  }
  if (found.length > 0) events.hints(found);
}

/** Listens to the namespaces that devices of this host lead to. @returns a function that stops this */
function listenInside(hints: DeviceHints, events: SourceEvents): () => void {
  const unread = (why: string): void => events.hints([{ of: 'all', isLikely: false, why }]);
  const listener = {
    changed: (all: readonly PeerMessages[]) => told(events, () => hints.hintsInside(all), unread),
    lost: events.missed,
  };
  // If the kernel is too old for this, the timer finds what changes inside.
  return attempt(() => openPeerMonitor(listener)) ?? (() => {});
}

function listDevices(): HostDevice[] {
  return new Tables().links.map(({ index, name, flags, master, peer, attrs }) => {
    return { index, name, isUp: (flags & IFF_UP) !== 0, master, peer, nsid: attrs.linkNetnsId };
  });
}

/** How often a directory is looked for that does not exist, or has been replaced by another one. */
const LOOK_EVERY_MS = 2_000;

/** Watches the directory of that path, whichever it is at the time. @returns a function that stops this */
function watchDirectory(dir: string, changed: () => void): () => void {
  let watcher: FSWatcher | undefined;
  let [watched, seen] = ['', identityOf(dir)];
  const watchAnew = (now: string): void => {
    watcher?.close();
    watcher = undefined;
    watched = '';
    if (now === '') return;
    try {
      watcher = watch(dir, { persistent: false }, changed);
      watcher.on('error', () => {
        watched = '';
      });
      watched = now;
    } catch {
      // It has just been removed, or the limit of watches is reached: tried again.
    }
  };
  const look = (): void => {
    const now = identityOf(dir);
    if (now !== watched) watchAnew(now);
    if (now === seen) return;
    seen = now;
    changed();
  };
  look();
  const timer = setInterval(look, LOOK_EVERY_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
    watcher?.close();
  };
}

/** Differs for another directory at the same path; empty if there is none. */
function identityOf(dir: string): string {
  const { dev, ino, birthtimeMs } = statSync(dir, { throwIfNoEntry: false }) ?? {};
  return ino === undefined ? '' : `${dev} ${ino} ${birthtimeMs}`;
}

interface HostDevice {
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
    const all = notifications.flatMap(({ nsid, messages }) => messages.map(message => ({ nsid, message })));
    return all.flatMap(({ nsid, message }) =>
      decodeRouteNotification(message).flatMap(change => {
        const device = this.#ends.get(endOf(nsid, change.index));
        return device ? hintsAbout(device, change) : [];
      }),
    );
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
    return messages.flatMap(decodeRouteNotification).flatMap(change => this.#hintOf(change) ?? []);
  }

  #hintOf(change: RouteNotification): Hint | undefined {
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
  if (isDeepStrictEqual(before, device.inside)) return [];
  if (isGone) return [hint];
  // As on the host.
  if (device.isNew && !isUp && before?.isUp !== true) return [];
  return [{ ...hint, end: { name, isUp, mac, hasOtherMtu: before?.isUp === true && before.mtu !== mtu } }];
}

export type Hint =
  /** An attachment named by an element that was deleted from this table. */
  | { readonly of: 'owner'; readonly owner: AttachmentId; readonly table: string }
  /** Elements of a table of ours that name no attachment, such as counts of what several have. */
  | { readonly of: 'shared'; readonly table: string }
  /** Attachments that have a device on the host, or a route or address there. */
  | { readonly of: 'device'; readonly name: string }
  /** Attachments that have a device on the host whose other end has changed, in a namespace where only containers act. */
  | { readonly of: 'inside'; readonly name: string; readonly end?: OtherEnd }
  /** None yet: a device was made on the host, and its attachment may be listed soon. */
  | { readonly of: 'arrival' }
  /** Every attachment. `isLikely`: what was removed is part of attachments; otherwise it only may be. */
  | { readonly of: 'all'; readonly isLikely: boolean; readonly why: string };

/** How the other end of a device is now. An interface that is as its ADD made it is no damage. */
interface OtherEnd {
  readonly name: string;
  readonly isUp: boolean;
  readonly mac: string | undefined;
  /** It had another MTU before. */
  readonly hasOtherMtu: boolean;
}

/** Prefix of the tables that our plugins make. */
const OWN = 'catena_';
/**
 * Tables of the reference's plugins, those of iptables-nft, and firewalld's, which has pods as sources of a zone: rules of
 * attachments are among many others there.
 */
const SHARED = /^(cni_.*|nat|filter|mangle|raw|security|firewalld)$/;
/** Chains of kubelet and kube-proxy, which writes all of them again at each change of a service. No plugin has a rule there. */
const FOREIGN_CHAIN = /^KUBE-/;

/**
 * A firewalld that starts, or has reloaded, rejects pods that it does not know. While it reloads, nothing of it exists, so what was checked
 * then is checked again. With iptables its rules are in this chain.
 */
const FIREWALLD = { table: 'firewalld', chain: 'FORWARD_ZONES' };

/** Hints from notifications of nf_tables. An element of another owner's table, or a rule added by others, is none. */
export function hintsOfRules(messages: readonly Envelope[]): Hint[] {
  const hints: Hint[] = [];
  for (const message of messages) {
    const { table: added, chain, isDormant } = decodeNftAddition(message) ?? {};
    if (added === FIREWALLD.table || chain === FIREWALLD.chain)
      hints.push({ of: 'all', isLikely: false, why: 'firewalld' });
    if (isDormant && added?.startsWith(OWN))
      hints.push({ of: 'all', isLikely: true, why: `table "${added}", now dormant` });
    const deletion = decodeNftDeletion(message, table => table.startsWith(OWN) || SHARED.test(table));
    if (deletion !== undefined) hints.push(...hintsOfDeletion(deletion, messages));
  }
  return hints;
}

function hintsOfDeletion(deletion: NftChange, messages: readonly Envelope[]): Hint[] {
  const { table, chain, comments } = deletion;
  const isOwn = table.startsWith(OWN);
  if (!isOwn && chain !== undefined && FOREIGN_CHAIN.test(chain)) return [];
  const owners = comments?.map(findOwner);
  if (owners?.length && owners.every(owner => owner !== undefined))
    return owners.map(owner => ({ of: 'owner', owner, table }));
  if (isOwn && comments?.length === 0) return isRenewed(deletion, messages) ? [] : [{ of: 'shared', table }];
  return [{ of: 'all', isLikely: isOwn && owners === undefined, why: `table "${table}"` }];
}

/** A count that changes is deleted and added in one transaction. */
function isRenewed({ table, set }: NftChange, messages: readonly Envelope[]): boolean {
  return messages.some(message => {
    const added = decodeNftSetAddition(message);
    return added?.table === table && added.set === set;
  });
}

type Attachments = ReadonlyMap<string, WatchedAttachment>;

/**
 * The attachments that hints about owners and devices name. Changes of what no attachment has concern none.
 * @param known the attachments as last listed
 * @param relist lists them again, for a hint that names none of these: an attachment may be new
 * @returns their keys
 */
export function chooseConcerned(
  hints: readonly Hint[],
  known: Attachments,
  relist: () => Attachments,
): Set<string> {
  const named = hints.flatMap(hint => (hint.of === 'owner' ? hint.owner : []));
  const owners = [...new Map(named.map(owner => [keyOf(owner), owner])).values()];
  const devices = new Set(hints.flatMap(hint => (hint.of === 'device' ? hint.name : [])));
  if (owners.length === 0 && devices.size === 0) return new Set();
  const found = withDevices(known, devices, owners);
  return found.isComplete ? found.keys : withDevices(relist(), devices, owners).keys;
}

/**
 * Whether every attachment is looked at. Elements that name none of them are no reason if elements of owners left the same table at the
 * same moment: a DEL removes its own, and what counts them.
 * @returns undefined: no
 */
export function chooseSweep(hints: readonly Hint[]): 'likely' | 'possible' | undefined {
  const owned = new Set(hints.flatMap(hint => (hint.of === 'owner' ? hint.table : [])));
  let chosen: 'possible' | undefined;
  for (const hint of hints) {
    if (hint.of === 'all' && hint.isLikely) return 'likely';
    if (hint.of === 'all' || (hint.of === 'shared' && !owned.has(hint.table))) chosen = 'possible';
  }
  return chosen;
}

/**
 * Names of devices whose other end is not as an ADD made it.
 * @param known the attachments as last listed. A device of none of them may be that of an ADD that has not ended
 */
export function devicesChangedInside(hints: readonly Hint[], known: Attachments): Set<string> {
  const inside = hints.flatMap(hint => (hint.of === 'inside' ? hint : []));
  const ends = inside.filter(({ end }) => end !== undefined).map(({ name }) => name);
  const owners = ownersOf(new Set(ends), known);
  const isChanged = ({ name, end }: (typeof inside)[number]) =>
    end === undefined || !(owners.get(name) ?? []).every(one => isAsMade(one, end)) || !end.isUp;
  return new Set(inside.filter(isChanged).map(({ name }) => name));
}

function ownersOf(
  devices: ReadonlySet<string>,
  known: Attachments,
): ReadonlyMap<string, readonly WatchedAttachment[]> {
  const owners = new Map<string, WatchedAttachment[]>();
  for (const one of devices.size > 0 ? known.values() : [])
    for (const name of one.devices)
      if (devices.has(name)) owners.set(name, [...(owners.get(name) ?? []), one]);
  return owners;
}

/** Whether the interface is what the result of its ADD says. */
function isAsMade({ result }: WatchedAttachment, { name, isUp, mac, hasOtherMtu }: OtherEnd): boolean {
  const own = objectsIn(result, 'interfaces').find(one => one.name === name && one.sandbox);
  if (own === undefined || !isUp || hasOtherMtu) return false;
  return typeof own.mac !== 'string' || own.mac === '' || own.mac.toLowerCase() === mac;
}

/**
 * The attachments whose device on the host has one of these names, or that are named.
 * @returns their keys, and whether each name and each owner is that of one
 */
export function withDevices(
  attachments: Attachments,
  devices: ReadonlySet<string>,
  owners: readonly AttachmentId[] = [],
): { readonly keys: Set<string>; readonly isComplete: boolean } {
  const keys = new Set<string>();
  const named = new Set<string>();
  const unmet = new Set(owners);
  for (const { key, network, containerId, ifname, devices: own, isCheckedInParts } of attachments.values()) {
    const add = () => isCheckedInParts || keys.add(key);
    for (const device of own) {
      if (!devices.has(device)) continue;
      add();
      named.add(device);
    }
    for (const owner of owners) {
      const isIt = owner.network === network && owner.ifname === ifname;
      if (!isIt || !isSameContainer(containerId, owner.containerId)) continue;
      add();
      unmet.delete(owner);
    }
  }
  return { keys, isComplete: unmet.size === 0 && named.size === devices.size };
}
