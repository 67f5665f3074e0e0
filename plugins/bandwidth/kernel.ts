// How are the planned limits applied to a device, and how are they verified?

import { attachmentOf } from '../../src/attach/owner.ts';
import { type AttachmentId, findOwner, renderOwner } from '../../src/cni/attachment.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { NLM_F_CREATE, NLM_F_REPLACE, type Request } from '../../src/netlink/codec.ts';
import {
  ETH_P_ALL,
  type Filter,
  listFilters,
  listIngressFilters,
  redirectRequest,
  removeIngressFiltersRequest,
  subnetFilterRequest,
} from '../../src/netlink/rtnl/filter.ts';
import {
  ALIAS_MAX_BYTES,
  findHostEnd,
  findLink,
  findLinks,
  getLink,
  IFF_LOOPBACK,
  IFF_UP,
  type Link,
  linkQuestion,
  listLinks,
  makeLink,
  setLinkRequest,
} from '../../src/netlink/rtnl/link.ts';
import {
  bfifoRequest,
  findQdisc,
  htbClassRequest,
  htbRequest,
  ingressRequest,
  listClasses,
  QDISC_GONE,
  type Qdisc,
  qdiscQuestion,
  removeQdiscRequest,
  renderTcHandle,
  type Tbf,
  tbfRequest,
  tcHandle,
} from '../../src/netlink/rtnl/qdisc.ts';
import { isNetlinkError, type NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import {
  type Bucket,
  type Direction,
  type FoundTree,
  findTreeDifferences,
  isReferenceTree,
  SHAPED_MINOR,
  type Shaper,
  type Shaping,
  type Tree,
  UNLIMITED_BYTES,
  UNSHAPED_MINOR,
} from './plan.ts';

const PREFIX = 'bwp';
const HEX_DIGITS = 12;
const NAME = /^bwp[0-9a-f]{12}$/;

/** Packets that the device itself may queue: with 0, as in the reference, every packet stops the queue. */
const TX_QUEUE_PACKETS = 1000;

/**
 * Names the device may have: the reference's, so that either plugin can clean up after the other, and one of our own in case the
 * same container is attached to the network twice and the other attachment has the first.
 */
export function ifbNamesOf({ network, containerId, ifname }: AttachmentId): readonly [string, string] {
  return [hashedName(`${network}${containerId}`), hashedName(`${network}${containerId}${ifname}`)];
}

/** The attachment's devices; a device that names another attachment is skipped. */
export function findIfbs(host: NetlinkSocket, attachment: AttachmentId): Link[] {
  return ownAmong(findLinks(host, ifbNamesOf(attachment)), attachment);
}

function ownAmong(links: readonly (Link | undefined)[], attachment: AttachmentId): Link[] {
  return links.flatMap(link => (link && isOwn(link, attachment) ? [link] : []));
}

/** Devices whose names look like those of bandwidth, or that have been renamed since and still name their attachment. */
export function listIfbs(host: NetlinkSocket): Link[] {
  return listLinks(host).filter(
    ({ kind, name, attrs }) => kind === 'ifb' && (NAME.test(name) || findOwner(attrs.alias)),
  );
}

/** The attachment's devices by whatever name. */
export function findRenamedIfbs(host: NetlinkSocket, attachment: AttachmentId): Link[] {
  return listIfbs(host).filter(({ attrs }) => attrs.alias && attrs.alias === aliasOf(attachment));
}

interface WantedIfb {
  /** Of the namespace that the device is for. */
  readonly socket: NetlinkSocket;
  /** That namespace, if it is not the host's. */
  readonly netns: Netns | undefined;
  readonly attachment: AttachmentId;
  readonly mtu: number;
  /** The existing devices with the names that it may have. */
  readonly present: readonly (Link | undefined)[];
}

/**
 * The attachment's device, created if missing. It is up and has the given MTU once the settings have been sent.
 * Same as: `ip link add bwp… mtu <mtu> txqueuelen 1000 type ifb`, `ip link set bwp… up alias catena:…`
 */
function ensureIfb({ socket, netns, attachment, mtu, present }: WantedIfb) {
  const names = ifbNamesOf(attachment);
  for (const [i, name] of names.entries()) {
    // Another process may create a device of that name first; then it is not ours.
    const made = present[i]
      ? undefined
      : makeLink(socket, { name, kind: 'ifb', ...settingsFor(mtu), up: false });
    const link = present[i] ?? made ?? getLink(socket, name);
    if (!isOwn(link, attachment)) continue;
    // It needs no addresses; with their routes the kernel would be busy whenever any interface appears or disappears.
    const silence = () => trySysctl(`net/ipv6/conf/${name}/disable_ipv6`, '1');
    if (made) netns ? inNetns(netns, silence) : silence();
    return { link, isNew: made !== undefined, settings: requestsFor(link, attachment, mtu) };
  }
  throw new Error(`Cannot create device "${names.join('" or "')}": other attachments use both names`);
}

function settingsFor(mtu: number) {
  return { up: true, mtu, txqlen: TX_QUEUE_PACKETS };
}

function requestsFor(link: Link, attachment: AttachmentId, mtu: number): Request[] {
  const note = aliasOf(attachment);
  const isSettled =
    (link.flags & IFF_UP) !== 0 &&
    link.mtu === mtu &&
    link.attrs.txqlen === TX_QUEUE_PACKETS &&
    link.attrs.alias === note;
  return isSettled ? [] : [setLinkRequest(link.index, { ...settingsFor(mtu), alias: note })];
}

/** The reference leaves no note, so a device with the attachment's name and no note is considered its own. */
function isOwn(link: Link, attachment: AttachmentId): boolean {
  if (link.kind !== 'ifb') return false;
  const { alias } = link.attrs;
  return findOwner(alias) === undefined || alias === aliasOf(attachment);
}

/** Undefined for a network whose name alone is too long. */
function aliasOf(attachment: AttachmentId): string | undefined {
  const alias = renderOwner(attachment, ALIAS_MAX_BYTES);
  return alias.length <= ALIAS_MAX_BYTES ? alias : undefined;
}

function hashedName(text: string): string {
  return PREFIX + Bun.CryptoHasher.hash('sha512', text, 'hex').slice(0, HEX_DIGITS);
}

/** A device that all packets of an attachment pass. */
export interface ShapedDevice {
  /** Of the namespace that the device is in. */
  readonly socket: NetlinkSocket;
  readonly link: Link;
  /** The direction that the device sends, which is queued on itself; the other one takes a detour through an IFB device. */
  readonly sends: Direction;
  /** The container's, if the device is in there. */
  readonly netns?: Netns;
}

/**
 * The host end of the container's veth: there the container cannot lift its limits. Every other interface has no end on the host,
 * or none that this chain made, and is limited where it is.
 * @throws CniError 7 when there is no such interface
 */
export function getShapedDevice(call: Call, prevResult: Result): ShapedDevice {
  const { ifname, netns } = call.env;
  const link = findLink(call.container, ifname);
  const obstacle = link === undefined ? 'there is no such interface' : 'it is the loopback device';
  if (link === undefined || link.flags & IFF_LOOPBACK) {
    throw invalidConfig(`Cannot limit interface "${ifname}" in "${netns}": ${obstacle}`);
  }
  const peer = findHostEnd(call, link);
  // The result of this chain names what the chain has made on the host.
  return peer && hostInterfacesOf(prevResult).includes(peer.name) ? onHost(call, peer) : inside(call, link);
}

/** Where limits may remain: on the host, and unless this chain made a host end, in the container. */
export function findShapedDevices(call: Call): ShapedDevice[] {
  const link = call.findContainerNetns() && findLink(call.container, call.env.ifname);
  const peer = link && findHostEnd(call, link);
  // Another container may have been attached in the namespace after it was examined: its owner is asked for with both in hand.
  if (link === undefined || !call.findContainerNetns(true))
    return findNamed(call).map(one => onHost(call, one));
  const isMade = peer !== undefined && hostInterfacesOf(call.prevResult ?? {}).includes(peer.name);
  const veths = peer ? [peer] : findNamed(call);
  return [...veths.map(veth => onHost(call, veth)), ...(isMade ? [] : [inside(call, link)])];
}

function onHost({ host }: Call, link: Link): ShapedDevice {
  return { socket: host, link, sends: 'ingress' };
}

/** What a tap sends is read by the virtual machine behind it, so it is the host end of that machine. */
function inside({ container, containerNetns }: Call, link: Link): ShapedDevice {
  return {
    socket: container,
    link,
    sends: link.kind === 'tun' ? 'ingress' : 'egress',
    netns: containerNetns,
  };
}

/**
 * Host ends that `prevResult` names. Leaves out missing devices, and devices that have taken over the name: those whose alias
 * names another attachment, or whose hardware address differs from the one in `prevResult`.
 */
function findNamed(call: Call): Link[] {
  const own = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  return (call.prevResult?.interfaces ?? []).flatMap(({ name, mac, sandbox }) => {
    if (sandbox) return [];
    const found = findLink(call.host, name);
    if (found?.kind !== 'veth' || (mac && mac.toLowerCase() !== found.mac)) return [];
    const { alias } = found.attrs;
    return findOwner(alias) === undefined || alias === own ? [found] : [];
  });
}

function hostInterfacesOf({ interfaces = [] }: Pick<Result, 'interfaces'>): string[] {
  return interfaces.filter(({ sandbox }) => !sandbox).map(({ name }) => name);
}

/**
 * Limits both directions, and removes the limit of a direction that is unlimited. A device can only delay what it sends, so
 * packets that it receives are redirected through an IFB device, which has its queue before the first packet arrives.
 * @returns that device, and those to which no redirect leads any longer
 */
export function applyShaping(device: ShapedDevice, attachment: AttachmentId, shaping: Shaping) {
  const { socket, link, sends, netns } = device;
  const [sent, received] = [shaping[sends], shaping[opposite(sends)]];
  const { root, hook, ifbs: present } = lookAt(device, attachment);
  // Errors are thrown before anything is changed.
  const queue = sent ? queueRequests(socket, link, root, sent) : queueRemovals(socket, root);
  if (!received) {
    const ifbs = ownAmong(present, attachment);
    socket.requestAll(queue);
    removeAll(socket, redirectRemovals(socket, link, hook, ifbs));
    return { unused: ifbs };
  }
  const { link: ifb, isNew, settings } = ensureIfb({ socket, netns, attachment, mtu: link.mtu, present });
  const held = isNew ? undefined : findQdisc(socket, ifb.index, 'root');
  socket.requestAll([
    ...queue,
    ...settings,
    ...queueRequests(socket, ifb, held, received),
    ...redirectRequests(socket, link, hook, ifb),
  ]);
  return { ifb, unused: [] };
}

/** Compares the kernel with {@link applyShaping}. @throws Error saying what was expected and what was found */
export function verifyShaping(device: ShapedDevice, attachment: AttachmentId, shaping: Shaping): void {
  const { socket, link, sends } = device;
  const receives = opposite(sends);
  const [sent, received] = [shaping[sends], shaping[receives]];
  const { root, hook, ifbs } = lookAt(device, attachment);
  if (sent) refuseIf(sends, link, findQueueDifference(socket, root, sent));
  if (!received) return;
  const [ifb] = ownAmong(ifbs, attachment);
  if (ifb === undefined) throw differs(receives, link, 'its IFB device does not exist');
  if (!(ifb.flags & IFF_UP)) refuseIf(receives, ifb, 'the device is down');
  refuseIf(receives, ifb, findQueueDifference(socket, findQdisc(socket, ifb.index, 'root'), received));
  refuseIf(receives, link, findRedirectDifference(socket, link, hook, ifb));
}

/**
 * Removes what {@link applyShaping} added to a device. The IFB devices themselves may already be gone; removing them is up to the
 * caller.
 */
export function removeShaping({ socket, link }: ShapedDevice, ifbs: readonly Link[]): void {
  const [root, hook] = socket.askAll(hooksOf(link));
  removeAll(socket, [...queueRemovals(socket, root), ...redirectRemovals(socket, link, hook, ifbs)]);
}

function opposite(direction: Direction): Direction {
  return direction === 'ingress' ? 'egress' : 'ingress';
}

/** Reads the root qdisc and the ingress hook of a device, and the devices with the attachment's names. */
function lookAt({ socket, link }: ShapedDevice, attachment: AttachmentId) {
  const [first, second] = ifbNamesOf(attachment);
  const questions = [...hooksOf(link), linkQuestion(first), linkQuestion(second)] as const;
  const [root, hook, ...ifbs] = socket.askAll(questions);
  return { root, hook, ifbs };
}

function hooksOf({ index }: Link) {
  return [qdiscQuestion(index, 'root'), qdiscQuestion(index, 'ingress')] as const;
}

/** Missing ones are ignored. */
function removeAll(socket: NetlinkSocket, requests: readonly Request[]): void {
  for (const outcome of socket.attemptAll(requests)) {
    if (outcome instanceof Error && !isNetlinkError(outcome, ...QDISC_GONE)) throw outcome;
  }
}

function refuseIf(direction: Direction, device: Link, state: string | undefined): void {
  if (state !== undefined) throw differs(direction, device, state);
}

function differs(direction: Direction, device: Link, state: string): Error {
  return new Error(`Cannot confirm the ${direction} limit on "${device.name}": ${state}`);
}

/** Requests that redirect a device's incoming packets to another one; empty if they are already redirected. */
function redirectRequests(host: NetlinkSocket, veth: Link, hook: Qdisc | undefined, target: Link): Request[] {
  // `clsact`, which others use on a veth, can hold our filter as well as `ingress` can.
  const filters = hook ? listIngressFilters(host, veth.index) : [];
  if (isRedirected(filters, target)) return [];
  // A redirect to a missing device drops everything, and another one of ours is for some protocols only.
  const dead = filters.filter(({ redirectAllTo: to }) => to === 0 || to === target.index);
  const preference = findFreePreference(filters.filter(filter => !dead.includes(filter)));
  return [
    ...(hook ? [] : [ingressRequest(veth.index)]),
    ...removalsOf(veth, dead),
    redirectRequest(veth.index, { preference, target: target.index }),
  ];
}

/** The difference from {@link redirectRequests}, human-readable; undefined if there is none. */
function findRedirectDifference(
  host: NetlinkSocket,
  veth: Link,
  hook: Qdisc | undefined,
  target: Link,
): string | undefined {
  if (hook === undefined) return 'it has no ingress qdisc';
  if (isRedirected(listIngressFilters(host, veth.index), target)) return undefined;
  return `no filter redirects its ingress traffic to "${target.name}"`;
}

/**
 * Requests that remove redirects to the given devices and to missing ones. Other filters are kept, and so is a qdisc that holds
 * any.
 */
function redirectRemovals(
  host: NetlinkSocket,
  veth: Link,
  hook: Qdisc | undefined,
  targets: readonly Link[],
): Request[] {
  if (hook === undefined) return [];
  const filters = listIngressFilters(host, veth.index);
  const indexes = [0, ...targets.map(({ index }) => index)];
  const ours = filters.filter(({ redirectAllTo }) => indexes.some(index => index === redirectAllTo));
  // Without a filter or a device of ours, the qdisc is not ours either.
  if (ours.length === 0 && targets.length === 0) return [];
  if (hook.kind === 'ingress' && ours.length === filters.length) return [removeQdiscRequest(hook)];
  return removalsOf(veth, ours);
}

function isRedirected(filters: readonly Filter[], target: Link): boolean {
  return filters.some(
    ({ redirectAllTo, protocol }) => redirectAllTo === target.index && protocol === ETH_P_ALL,
  );
}

/** The first preference that is free: filters of one preference share a kind and a protocol. */
function findFreePreference(others: readonly Filter[]): number {
  let preference = 1;
  while (others.some(filter => filter.preference === preference)) preference++;
  return preference;
}

function removalsOf(veth: Link, filters: readonly Filter[]): Request[] {
  const byPreference = new Map(filters.map(filter => [filter.preference, filter]));
  return [...byPreference.values()].map(filter => removeIngressFiltersRequest(veth.index, filter));
}

/** Our qdiscs have the same handles as the reference's: `1:` at the root, and the queue of the limited class. */
const ROOT = tcHandle(1, 0);
const SHAPED = tcHandle(1, SHAPED_MINOR);
const SHAPED_QUEUE = tcHandle(SHAPED_MINOR, 0);

/**
 * Requests that set the limit on a device, replacing one of ours or of the reference; empty if it is already set.
 * @param root the existing root qdisc
 * @throws Error when it is a foreign qdisc
 */
function queueRequests(
  host: NetlinkSocket,
  device: Link,
  root: Qdisc | undefined,
  { bucket, tree, form }: Shaper,
): Request[] {
  const found = root && findTree(host, root);
  if (root && found === undefined && !isBucket(root)) {
    throw new Error(
      `Cannot limit "${device.name}": it has a foreign root qdisc "${root.kind}" ` +
        `(handle "${renderTcHandle(root.handle)}"); remove it first`,
    );
  }
  const removal = root ? [removeQdiscRequest(root)] : [];
  if (form === 'bucket') {
    // A bucket replaces another without a gap.
    return [...(found ? removal : []), tbfRequest(device.index, bucket.tbf)];
  }
  if (found && findTreeDifferences(tree, found).length === 0) return [];
  if (found && differsInRate(tree, found)) return rateRequests(device.index, tree);
  return [...removal, ...treeRequests(device.index, tree)];
}

/** The difference from {@link queueRequests}, human-readable; undefined if there is none. */
function findQueueDifference(
  host: NetlinkSocket,
  root: Qdisc | undefined,
  { bucket, tree, form }: Shaper,
): string | undefined {
  const kind = form === 'tree' ? 'htb' : 'tbf';
  const found = root && findTree(host, root);
  if (found && isReferenceTree(tree, found)) return undefined;
  if (root?.kind !== kind)
    return `its root qdisc is ${root ? `"${root.kind}"` : 'the default'}, not "${kind}"`;
  if (form === 'bucket') return findBucketDifference(bucket, root);
  if (found === undefined) return 'the classes of its root qdisc "htb" are foreign';
  return findTreeDifferences(tree, found).join('; ') || undefined;
}

/** Requests that remove the limit from a device; other qdiscs are kept. */
function queueRemovals(host: NetlinkSocket, root: Qdisc | undefined): Request[] {
  if (root === undefined || !(isBucket(root) || findTree(host, root))) return [];
  return [removeQdiscRequest(root)];
}

function isBucket({ kind, handle }: Qdisc): boolean {
  return kind === 'tbf' && handle === ROOT;
}

function treeRequests(index: number, tree: Tree): Request[] {
  return [
    htbRequest(index, tree.defaultMinor),
    htbClassRequest(index, UNSHAPED_MINOR, tree.unshaped),
    htbClassRequest(index, SHAPED_MINOR, tree.shaped),
    bfifoRequest(index, { parent: SHAPED, handle: SHAPED_QUEUE, limitBytes: tree.limitBytes }),
    ...tree.filters.map(filter => subnetFilterRequest(index, filter)),
  ];
}

/** Whether the limited class and its queue exist, and nothing else is to be changed. */
function differsInRate(tree: Tree, found: FoundTree): boolean {
  const { shaped, limitBytes } = found;
  return (
    Boolean(shaped && limitBytes) &&
    findTreeDifferences({ ...tree, ...defined({ shaped, limitBytes }) }, found).length === 0
  );
}

/** They change the class and its queue in place: what is queued stays. */
function rateRequests(index: number, { shaped, limitBytes }: Tree): Request[] {
  const flags = NLM_F_CREATE | NLM_F_REPLACE;
  return [
    { ...htbClassRequest(index, SHAPED_MINOR, shaped), flags },
    { ...bfifoRequest(index, { parent: SHAPED, handle: SHAPED_QUEUE, limitBytes }), flags },
  ];
}

/** The tree at a root: two classes as only we and the reference make them; undefined for other trees. */
function findTree(host: NetlinkSocket, root: Qdisc): FoundTree | undefined {
  const { index, kind, handle, defaultClass } = root;
  if (kind !== 'htb' || handle !== ROOT || defaultClass === undefined) return undefined;
  const classes = listClasses(host, index).filter(one => one.kind === 'htb');
  const classOf = (minor: number) => classes.find(one => one.handle === tcHandle(1, minor))?.htb;
  const [shaped, unshaped] = [classOf(SHAPED_MINOR), classOf(UNSHAPED_MINOR)];
  // Others also use these numbers, but not with that rate; damage may have left only one of the two.
  const isOurs =
    classes.length <= 2 && (unshaped ? unshaped.rateBytes === UNLIMITED_BYTES : shaped !== undefined);
  if (!isOurs) return undefined;
  const queue = findQdisc(host, index, SHAPED);
  return {
    defaultMinor: defaultClass,
    shaped,
    unshaped,
    limitBytes: queue?.kind === 'bfifo' ? queue.limitBytes : undefined,
    filters: listFilters(host, index, ROOT),
  };
}

function findBucketDifference({ tbf, accepted }: Bucket, root: Qdisc): string | undefined {
  const { tbf: found } = root;
  if (found && accepted.some(other => renderTbf(other) === renderTbf(found))) return undefined;
  return `expected ${renderTbf(tbf)}, found ${found ? renderTbf(found) : 'none'}`;
}

function renderTbf({ rateBytes, limitBytes, bufferTicks }: Tbf): string {
  return `rate ${rateBytes * 8} bit/s, limit ${limitBytes} bytes, buffer ${bufferTicks} ticks`;
}
