// How are network devices found, made, changed and removed, and which attributes do they have?

import { IFNAME_MAX_BYTES } from '../../net/interface.ts';
import type { Ip } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { ownNetns } from '../../sys/netns.ts';
import {
  attrs,
  byKind,
  type Field,
  ip,
  listOf,
  mac,
  type RawAttribute,
  type Request,
  s32,
  str,
  struct,
  u8,
  u16,
  u16be,
  u32,
  type ValuesOf,
} from '../codec.ts';
import { isNetlinkError, NetlinkError, type NetlinkSocket, type Question, tolerating } from '../socket.ts';
import { AF, messages } from './message.ts';

/** The ends of a tunnel that was made without learning. */
interface Vxlan {
  /** VXLAN network identifier: 24 bits. */
  readonly id: number;
  /** This end's address, from which the packets are sent. */
  readonly local: Ip;
  /** UDP port of every end. */
  readonly port: number;
}

/** What the kernel is told of a new tunnel. Same as: `type vxlan id <id> local <address> dstport <port> nolearning` */
function vxlanData({ id, local, port }: Vxlan) {
  return { id, ...(local.family === 4 ? { local } : { local6: local }), learning: 0, port };
}

/** The ends of a link of kind `vxlan`; undefined for one of another kind, or without an address of its own. */
export function vxlanOf(
  link: Pick<Link, 'kind' | 'attrs'>,
): (Vxlan & { readonly learning: boolean }) | undefined {
  const data = kindDataOf(link, 'vxlan');
  if (data?.port === undefined) return undefined;
  const { id = 0, local = data.local6, port, learning = 0 } = data;
  return local && { id, local, port, learning: learning !== 0 };
}

/** linux/rtnetlink.h */
export const ifinfomsg = struct('ifinfomsg', {
  family: u8,
  _pad: u8,
  type: u16,
  index: s32,
  flags: u32,
  change: u32,
});

/** linux/if.h */
export const IFF_UP = 0x1;
export const IFF_LOOPBACK = 0x8;
/** Neither ARP nor neighbour discovery: a dummy, or an ipvlan of mode l3. */
export const IFF_NOARP = 0x80;
export const IFF_PROMISC = 0x100;
export const IFF_ALLMULTI = 0x200;
export const IFF_MULTICAST = 0x1000;
/** Carrier: of a bridge, that a port of it is up and has one. */
export const IFF_LOWER_UP = 0x10000;

/** linux/if.h, RFC 2863 operational states as `IFLA_OPERSTATE` has them. */
export const OPERSTATES = [
  'unknown',
  'notpresent',
  'down',
  'lowerlayerdown',
  'testing',
  'dormant',
  'up',
] as const;

/** `IFLA_INFO_DATA` of kind `bridge`; linux/if_link.h, IFLA_BR_*. */
const bridge = attrs('bridge', {
  forwardDelay: [1, u32],
  helloTime: [2, u32],
  maxAge: [3, u32],
  ageingTime: [4, u32],
  stpState: [5, u32],
  priority: [6, u16],
  vlanFiltering: [7, u8],
  vlanProtocol: [8, u16be],
  groupFwdMask: [9, u16],
});

/** `IFLA_INFO_SLAVE_DATA` of kind `bridge` and `IFLA_PROTINFO`; linux/if_link.h, IFLA_BRPORT_*. */
const bridgePort = attrs('bridge port', {
  state: [1, u8],
  priority: [2, u16],
  cost: [3, u32],
  hairpin: [4, u8], // IFLA_BRPORT_MODE
  guard: [5, u8],
  protect: [6, u8],
  fastLeave: [7, u8],
  learning: [8, u8],
  unicastFlood: [9, u8],
  isolated: [33, u8],
});

/** Neither has data of its own: a dummy drops what is sent to it, qdiscs and redirects determine what an ifb shapes. */
const [dummy, ifb] = [attrs('dummy', {}), attrs('ifb', {})];

/** `IFLA_INFO_DATA` of kind `ipvlan`; linux/if_link.h, IFLA_IPVLAN_*. */
export const ipvlan = attrs('ipvlan', {
  mode: [1, u16],
  flags: [2, u16],
});

/** linux/if_link.h, enum ipvlan_mode. */
export const IPVLAN_MODES = { l2: 0, l3: 1, l3s: 2 } as const;

/** linux/if_link.h, IPVLAN_F_*: how children of one master reach each other. */
export const IPVLAN_FLAGS = { bridge: 0, private: 1, vepa: 2 } as const;

/** `IFLA_INFO_DATA` of kind `macvlan`; linux/if_link.h, IFLA_MACVLAN_*. */
export const macvlan = attrs('macvlan', {
  mode: [1, u32],
  flags: [2, u16],
  queueLength: [7, u32], // IFLA_MACVLAN_BC_QUEUE_LEN
  queueLengthUsed: [8, u32], // IFLA_MACVLAN_BC_QUEUE_LEN_USED
});

/** linux/if_link.h, enum macvlan_mode: how children of one master reach each other. */
export const MACVLAN_MODES = { private: 1, vepa: 2, bridge: 4, passthru: 8 } as const;

/** `IFLA_INFO_DATA` of kind `tun`, which the kernel reports and does not take; linux/if_link.h, IFLA_TUN_*. */
export const tun = attrs('tun', {
  owner: [1, u32],
  group: [2, u32],
  /** 1 for tun, 2 for tap. */
  type: [3, u8],
  pi: [4, u8],
  vnetHdr: [5, u8],
  persist: [6, u8],
  multiQueue: [7, u8],
  queues: [8, u32],
  disabledQueues: [9, u32],
});

/** IFLA_TUN_TYPE of a tap. */
export const TUN_TYPE_TAP = 2;

const peerAttrs = attrs('veth peer', {
  address: [1, mac], // IFLA_ADDRESS
  ifname: [3, str], // IFLA_IFNAME
  mtu: [4, u32], // IFLA_MTU
  txqlen: [13, u32], // IFLA_TXQLEN
  netnsFd: [28, u32], // IFLA_NET_NS_FD
});

/** linux/veth.h, VETH_INFO_PEER: a struct ifinfomsg and then link attributes. */
const peer: Field<ReturnType<typeof peerAttrs.decode>> = {
  nested: true,
  encode(writer, value) {
    ifinfomsg.encode(writer, {});
    peerAttrs.encode(writer, value, value);
  },
  decode: bytes => peerAttrs.decode(bytes.subarray(ifinfomsg.size), {}),
};

/** `IFLA_INFO_DATA` of kind `veth`. */
const veth = attrs('veth', {
  peer: [1, peer], // VETH_INFO_PEER
});

/** linux/if_link.h: struct ifla_vlan_qos_mapping, struct ifla_vlan_flags */
const qosMapping = struct('vlan qos mapping', { from: u32, to: u32 });
const vlanFlags = struct('vlan flags', { flags: u32, mask: u32 });

/** `IFLA_INFO_DATA` of kind `vlan`; linux/if_link.h, IFLA_VLAN_*. */
export const vlan = attrs('vlan', {
  id: [1, u16],
  flags: [2, vlanFlags],
  egressQos: [3, listOf(qosMapping)], // of IFLA_VLAN_QOS_MAPPING
  ingressQos: [4, listOf(qosMapping)],
  protocol: [5, u16be],
});

/** linux/if_ether.h, ETH_P_8021Q and ETH_P_8021AD: the tag's EtherType. */
export const VLAN_PROTOCOLS = { '802.1q': 0x8100, '802.1ad': 0x88a8 } as const;

/** `IFLA_INFO_DATA` of kind `vrf`; linux/if_link.h, IFLA_VRF_*. */
const vrf = attrs('vrf', {
  table: [1, u32],
});

/** `IFLA_INFO_DATA` of kind `vxlan`; linux/if_link.h, IFLA_VXLAN_*. */
const vxlan = attrs('vxlan', {
  id: [1, u32],
  local: [4, ip],
  learning: [7, u8],
  port: [15, u16be],
  local6: [17, ip],
});

const KINDS = { veth, bridge, ifb, dummy, macvlan, macvtap: macvlan, ipvlan, tun, vlan, vrf, vxlan };

/** linux/if_link.h, IFLA_INFO_* */
const linkInfo = attrs('linkinfo', {
  kind: [1, str],
  data: [2, byKind('kind', KINDS)],
  portKind: [4, str], // IFLA_INFO_SLAVE_KIND
  portData: [5, byKind('portKind', { bridge: bridgePort })], // IFLA_INFO_SLAVE_DATA
});

/** linux/if_link.h, IFLA_* */
const linkAttrs = attrs('link', {
  address: [1, mac],
  ifname: [3, str],
  mtu: [4, u32],
  link: [5, u32],
  qdisc: [6, str],
  master: [10, u32],
  protinfo: [12, bridgePort],
  txqlen: [13, u32],
  operstate: [16, u8],
  linkinfo: [18, linkInfo],
  alias: [20, str], // IFLA_IFALIAS
  group: [27, u32],
  netnsFd: [28, u32],
  extMask: [29, u32],
  promiscuity: [30, u32],
  linkNetnsId: [37, s32],
  propList: [52, listOf(str, 53)], // IFLA_PROP_LIST of IFLA_ALT_IFNAME
  altIfname: [53, str],
  permAddress: [54, mac], // IFLA_PERM_ADDRESS
  parentDevName: [56, str], // IFLA_PARENT_DEV_NAME
  parentDevBusName: [57, str],
  allmulti: [61, u32],
});

export const linkMessage = messages('LINK', ifinfomsg, linkAttrs);
const propMessage = messages('LINKPROP', ifinfomsg, linkAttrs);

/** Longest alias of a device. linux/if.h: IFALIASZ, less the terminating zero and one byte that the kernel does not use. */
export const ALIAS_MAX_BYTES = 254;

/** Groups used by people and other programs are small numbers; the field has 32 bits. */
const GROUPS_FROM = 1_000_000_000;

/** A network device as the kernel reports it. */
export interface Link {
  readonly index: number;
  readonly name: string;
  /** `veth`, `bridge`, `ifb`, …; empty for devices without a kind, such as loopback. */
  readonly kind: string;
  readonly flags: number;
  readonly mac: string | undefined;
  /** Bytes. */
  readonly mtu: number;
  /** Index of the bridge (or other master) that this is a port of; 0 for none. */
  readonly master: number;
  /** Index of the veth peer or lower device, in the namespace `linkNetnsId` when that is set. */
  readonly peer: number;
  readonly attrs: ReturnType<typeof linkAttrs.decode>;
}

export interface NewLink extends Pick<LinkChange, 'up' | 'mac' | 'mtu' | 'txqlen' | 'master'> {
  readonly name: string;
  readonly kind: 'veth' | 'bridge' | 'ifb' | 'dummy' | 'vrf' | 'vxlan';
  /** For bridges: enable VLAN filtering. */
  readonly vlanFiltering?: boolean | undefined;
  /** For VRFs: the routing table of the members. */
  readonly vrfTable?: number | undefined;
  /** For VXLANs: what the packets of the tunnel carry. It learns nothing from the packets that arrive. */
  readonly vxlan?: Vxlan | undefined;
  /** The other end, for veth; `netnsFd` creates it directly in another namespace. */
  readonly peer?: { readonly name: string } & Pick<LinkChange, 'netnsFd' | 'mac' | 'mtu'>;
}

/** Changes to a link; absent properties are left unchanged. */
export interface LinkChange {
  readonly up?: boolean | undefined;
  readonly promisc?: boolean | undefined;
  readonly allmulti?: boolean | undefined;
  /** Flags as IFF_*, and which of them to set or clear. */
  readonly flags?: { readonly of: number; readonly value: number } | undefined;
  readonly mac?: string | undefined;
  readonly mtu?: number | undefined;
  readonly txqlen?: number | undefined;
  /** Index of the new master; 0 releases the port. */
  readonly master?: number | undefined;
  readonly name?: string | undefined;
  /** A note of up to 255 bytes that `ip link` shows. */
  readonly alias?: string | undefined;
  /**
   * Descriptor of the namespace to move it to. The kernel moves it first, under its old name, or under `name` if that one is taken
   * there, and then makes the other changes.
   */
  readonly netnsFd?: number | undefined;
}

/**
 * The link with that name or index, or undefined; also undefined for a name that no link can have.
 * Same as: `ip link show dev <name>`
 */
export function findLink(socket: NetlinkSocket, which: string | number): Link | undefined {
  if (typeof which === 'string' && Buffer.byteLength(which) > IFNAME_MAX_BYTES) return undefined;
  return findLinks(socket, [which])[0];
}

export function findLinks(socket: NetlinkSocket, which: readonly (string | number)[]): (Link | undefined)[] {
  return socket.askAll(which.map(linkQuestion));
}

/** Like {@link findLink}, but throws a NetlinkError with ENODEV when there is none. */
export function getLink(socket: NetlinkSocket, which: string | number): Link {
  const link = socket.ask({ ...linkQuestion(which), absent: [] });
  if (link === undefined) throw new NetlinkError(`find ${wordsFor(which)}`, Errno.ENODEV);
  return link;
}

/** Index of the device that it is on, or of its other end, if that is in its own namespace; otherwise 0. */
export function lowerOf({ peer, attrs }: Link): number {
  return attrs.linkNetnsId === undefined ? peer : 0;
}

/** All links of the namespace. Without a mask (RTEXT_FILTER_SKIP_STATS), the kernel leaves out those with 32 KiB of names. Same as: `ip -d link show` */
export function listLinks(socket: NetlinkSocket): Link[] {
  return linkMessage.list(socket, 'list links', {}, { extMask: 8 }).map(toLink);
}

/**
 * Creates a link; fails with EEXIST when the name is taken. The kernel refuses IFF_UP with a peer in another namespace
 * (ENOTCONN), so pairs are brought up afterwards.
 * Same as: `ip link add <name> type <kind> [peer name <peer> netns <ns>]`, `… type bridge vlan_filtering 1` `… type vrf table <table>`, or
 * `… type vxlan id <id> local <address> dstport <port> nolearning`
 */
export function createLink(socket: NetlinkSocket, link: NewLink): void {
  const [made] = socket.attemptAll([newLinkRequest(link)]);
  if (made instanceof NetlinkError) throw explainKind(made, link.kind);
}

/** Like {@link createLink}, but also queries the new link in the same batch; undefined when the name is taken. */
export function makeLink(socket: NetlinkSocket, link: NewLink): Link | undefined {
  const question = linkQuestion(link.name);
  const [made, found] = socket.attemptAll([newLinkRequest(link), question]);
  if (isNetlinkError(made, Errno.EEXIST)) return undefined;
  if (made instanceof NetlinkError) throw explainKind(made, link.kind);
  const [body] = found instanceof NetlinkError ? [] : (found ?? []);
  if (body !== undefined) return question.read(body);
  // The caller does not know about the new link.
  removeLink(socket, link.name);
  throw found instanceof NetlinkError ? found : new NetlinkError(`find link "${link.name}"`, Errno.ENODEV);
}

/** net/core/rtnetlink.c. With the same number it refuses what a kind that it knows cannot do: a VLAN on a device, a port of a master. */
const UNKNOWN_KIND = 'Unknown device type';

/** Whether the kernel does not know the kind of a device, and has found no module for it. */
export function isUnknownKind(thrown: unknown): boolean {
  return thrown instanceof NetlinkError && thrown.kernelMessage === UNKNOWN_KIND;
}

/** Adds what to do to the refusal of a kind that the kernel does not know. */
export function explainKind(refusal: NetlinkError, kind: string): NetlinkError {
  const { op, errno, kernelMessage } = refusal;
  if (!isUnknownKind(refusal)) return refusal;
  // net/core/rtnetlink.c: MODULE_ALIAS_RTNL_LINK
  const advice = `this kernel needs its module: modprobe rtnl-link-${kind}`;
  return new NetlinkError(op, errno, kernelMessage, advice);
}

function newLinkRequest(link: NewLink): Request {
  const { name, kind, mtu, mac, master, txqlen, up = false } = link;
  return linkMessage.add(
    `create link "${name}" of kind ${kind}`,
    { flags: up ? IFF_UP : 0, change: up ? IFF_UP : 0 },
    {
      ifname: name,
      mtu,
      address: mac,
      master,
      txqlen,
      linkinfo: { kind, data: dataOf(link) },
    },
  );
}

function dataOf({ peer, vlanFiltering, vrfTable, vxlan }: NewLink) {
  if (peer) return { peer: { ifname: peer.name, mtu: peer.mtu, address: peer.mac, netnsFd: peer.netnsFd } };
  if (vlanFiltering !== undefined) return { vlanFiltering: Number(vlanFiltering) };
  return vrfTable === undefined ? vxlan && vxlanData(vxlan) : { table: vrfTable };
}

/** Changes a link in one request. Same as: `ip link set dev <link> …` */
export function setLink(socket: NetlinkSocket, index: number, change: LinkChange): void {
  socket.request(setLinkRequest(index, change));
}

export function setLinkRequest(index: number, change: LinkChange): Request {
  const switches: readonly (readonly [boolean | undefined, number])[] = [
    [change.up, IFF_UP],
    [change.promisc, IFF_PROMISC],
    [change.allmulti, IFF_ALLMULTI],
  ];
  let { of: mask, value: flags } = change.flags ?? { of: 0, value: 0 };
  for (const [on, bit] of switches) {
    if (on === undefined) continue;
    mask |= bit;
    if (on) flags |= bit;
  }
  const { mac, mtu, txqlen, master, name, alias, netnsFd } = change;
  const own = { address: mac, mtu, txqlen, master, ifname: name, alias, netnsFd };
  const words = Object.entries(change).flatMap(([key, value]) => {
    if (value === undefined) return [];
    return `${key} ${typeof value === 'object' ? value.value : value}`;
  });
  const op = `set ${words.join(', ')} on link with index ${index}`;
  return linkMessage.change(op, { index, flags, change: mask }, own);
}

/** The request that sends attributes of a link back as the kernel told them. */
export function linkSettingRequest(index: number, setting: RawAttribute): Request {
  const op = `set attribute ${setting.type} on link with index ${index}`;
  return linkMessage.change(op, { index }, { unknown: [setting] });
}

/** The request that gives a link one more alternative name. Same as: `ip link property add dev <link> altname <name>` */
export function addAltNameRequest(index: number, name: string): Request {
  const op = `add alternative name "${name}" to link with index ${index}`;
  return propMessage.add(op, { index }, { propList: [name] });
}

/** States of a bridge port; linux/if_bridge.h, BR_STATE_*. */
export const PORT_STATES = ['disabled', 'listening', 'learning', 'forwarding', 'blocking'] as const;

/** The attributes of a device's kind; undefined if it is of another kind, or the kernel says none. */
export function kindDataOf<K extends keyof typeof KINDS>(
  { kind, attrs }: Pick<Link, 'kind' | 'attrs'>,
  wanted: K,
): ValuesOf<(typeof KINDS)[K]> | undefined {
  const data = kind === wanted ? attrs.linkinfo?.data : undefined;
  return data instanceof Uint8Array ? undefined : (data as ValuesOf<(typeof KINDS)[K]> | undefined);
}

/** How a device is set as a port of a bridge, as the kernel says it; undefined if it is none. */
export function portDataOf({ attrs: { linkinfo } }: Link) {
  const data = linkinfo?.portData;
  return data instanceof Uint8Array ? undefined : data;
}

/** The state of a device as a port of a bridge; undefined if it is none, or in a state that the kernel does not say. */
export function portStateOf(link: Link): (typeof PORT_STATES)[number] | undefined {
  return PORT_STATES[portDataOf(link)?.state ?? -1];
}

/** Settings of a bridge port; absent ones are left unchanged. */
export interface PortSettings {
  readonly hairpin?: boolean;
  readonly isolated?: boolean;
  readonly state?: (typeof PORT_STATES)[number];
}

/** The request that sets flags of a bridge port. Same as: `bridge link set dev <link> hairpin on isolated on state 3` */
export function bridgePortRequest(index: number, { hairpin, isolated, state }: PortSettings): Request {
  const toNumber = (value: boolean | undefined) => (value === undefined ? undefined : Number(value));
  const protinfo = {
    hairpin: toNumber(hairpin),
    isolated: toNumber(isolated),
    ...(state ? { state: PORT_STATES.indexOf(state) } : {}),
  };
  const op = `set bridge port flags of link with index ${index}`;
  return linkMessage.change(op, { family: AF.bridge, index }, { protinfo }, 'SET');
}

/** Deletes a link; a missing one is ignored. Same as: `ip link del` */
export function removeLink(socket: NetlinkSocket, which: string | number): void {
  tolerating([Errno.ENODEV], () => socket.request(removeLinkRequest(which)));
}

/**
 * Deletes several links with one request. The kernel then waits for one grace period, not for one per link (100 pairs: 38 ms, one by
 * one 4.6 s). Missing ones are ignored.
 * Same as: `ip link set dev <link> group <n>` for each, then `ip link delete group <n>`
 */
export function removeLinks(socket: NetlinkSocket, indexes: readonly number[]): void {
  const request = deletionOf(socket, indexes);
  if (request) tolerating([Errno.ENODEV], () => socket.request(request));
}

/** The request that deletes the links, which are in one group after this; undefined if there are none. */
export function deletionOf(socket: NetlinkSocket, indexes: readonly number[]): Request | undefined {
  const [first, ...others] = new Set(indexes);
  if (first === undefined) return undefined;
  if (others.length === 0) return removeLinkRequest(first);
  // Any other link in the group would be deleted as well, so the group is a random ten-digit number, which people do not use.
  const group = GROUPS_FROM + Math.floor(Math.random() * GROUPS_FROM);
  const joining = [first, ...others].map(index =>
    linkMessage.change(`set group ${group} on link with index ${index}`, { index }, { group }),
  );
  tolerating([Errno.ENODEV], () => socket.requestAll(joining));
  return linkMessage.remove(`delete links with indexes ${[first, ...others].join(', ')}`, {}, { group });
}

function removeLinkRequest(which: string | number): Request {
  return linkMessage.remove(`delete ${wordsFor(which)}`, ...placeOf(which));
}

export function linkQuestion(which: string | number): Question<Link> {
  return linkMessage.question(`find ${wordsFor(which)}`, ...placeOf(which), [Errno.ENODEV], toLink);
}

function wordsFor(which: string | number): string {
  return typeof which === 'string' ? `link "${which}"` : `link with index ${which}`;
}

function placeOf(which: string | number): Parameters<typeof linkMessage.encode> {
  return typeof which === 'string' ? [{}, { ifname: which }] : [{ index: which }, {}];
}

function toLink({ header, attrs }: ReturnType<typeof linkMessage.decode>): Link {
  return {
    index: header.index,
    name: attrs.ifname ?? '',
    kind: attrs.linkinfo?.kind ?? '',
    flags: header.flags,
    mac: attrs.address,
    mtu: attrs.mtu ?? 0,
    master: attrs.master ?? 0,
    peer: attrs.link ?? 0,
    attrs,
  };
}

/** linux/net_namespace.h, NETNSA_NSID_NOT_ASSIGNED */
const NO_ID = -1;

/** linux/rtnetlink.h */
export const rtgenmsg = struct('rtgenmsg', { family: u8 });

/** linux/net_namespace.h, NETNSA_* */
const netnsIdMessage = messages('NSID', rtgenmsg, attrs('namespace id', { nsid: [1, s32], fd: [3, u32] }));

/**
 * The id by which links of the socket's namespace refer to another namespace (`IFLA_LINK_NETNSID`); -1 if it has none, as a
 * namespace has none for itself.
 * Same as: `ip netns list-id`
 */
export function netnsIdOf(socket: NetlinkSocket, netnsFd: number): number {
  const ask = () => socket.ask(netnsIdQuestion(netnsFd)) ?? NO_ID;
  const id = ask();
  if (id !== NO_ID) return id;
  // The kernel may give a namespace its id only when it first shows a device that leads there.
  listLinks(socket);
  return ask();
}

export function netnsIdQuestion(netnsFd: number): Question<number> {
  const op = 'find the id of a network namespace';
  return netnsIdMessage.question(op, {}, { fd: netnsFd }, [], ({ attrs }) => attrs.nsid ?? NO_ID);
}

/**
 * The other ends of veth devices of another namespace, by the index that a device has there, as far as they are in the socket's namespace: an
 * index is only meaningful in its own, and a container chooses those of its devices.
 */
export function findOtherEnds(
  socket: NetlinkSocket,
  devices: readonly Link[],
  netnsFd: number,
): ReadonlyMap<number, Link> {
  const pairs = devices.filter(({ kind, peer }) => kind === 'veth' && peer > 0);
  if (pairs.length === 0) return new Map();
  // The namespace may get its id when the end is shown.
  const questions: Question<Link | number>[] = [
    ...pairs.map(({ peer }) => linkQuestion(peer)),
    netnsIdQuestion(netnsFd),
  ];
  const answers = socket.askAll(questions);
  const netnsId = answers.at(-1);
  return new Map(
    pairs.flatMap(({ index }, i) => {
      const end = answers[i];
      if (typeof end !== 'object' || end.kind !== 'veth' || end.peer !== index) return [];
      return (end.attrs.linkNetnsId ?? NO_ID) === netnsId ? [[index, end] as const] : [];
    }),
  );
}

/** The same of one device of the container, if it is a veth. */
export function findHostEnd(
  {
    host,
    containerNetns,
  }: { readonly host: NetlinkSocket; readonly containerNetns: { readonly fd: number } },
  inside: Link,
): Link | undefined {
  return findOtherEnds(host, [inside], containerNetns.fd).get(inside.index);
}

/** The id by which links of the socket's namespace refer to the namespace that the thread is in; -1 if none does. */
export function ownIdIn(socket: NetlinkSocket): number {
  return netnsIdOf(socket, ownNetns().fd);
}
